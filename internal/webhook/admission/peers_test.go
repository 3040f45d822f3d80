package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/webhook/admission"
	"nodekeeper.dev/test/controlplane"
)

// Because of the marker the processors would otherwise assume that the labels are the ones that
// they would restore.
func TestNothingIsRestoredWhileProcessorsDiffer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		others others
		marker string
	}{
		"another mode":          {others{differing: []string{settings.LiveLabels, settings.RestoreMode}}, labels.Pending},
		"unknown":               {others{err: errors.New("the cache is not synced")}, labels.Pending},
		"another node selector": {others{differing: []string{settings.NodeSelector}}, ""},
		"the same":              {others{}, "70"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := handler(t, saved{record: recordOf(set{"rack": "r1"})})
			h.Processors = tc.others
			h.Gate = tc.marker == ""
			prefix := serve(t, h)
			n := created(t, kubelet(t, prefix), node(prefix, set{"own": "1"}))
			_, isRestored := n.Labels["rack"]
			assert.Equal(t, tc.marker == "70", isRestored, n.Labels)
			assert.Equal(t, tc.marker, n.Labels[labels.Marker])
			assert.Equal(t, tc.marker == labels.Pending, hasGate(n), "a node outside the selector has no gate")
			if isRestored {
				return
			}
			assert.Equal(t, "1", n.Labels["own"], "what the Node came with stays")
		})
	}
}

// TestPeersCompareWhatProcessorsPublish reads Leases from an API server.
func TestPeersCompareWhatProcessorsPublish(t *testing.T) {
	t.Parallel()
	c := adminClient(t)
	peers := &admission.Peers{Leases: c, Namespace: controlplane.Namespace(t, c), Settings: settings.Settings{
		settings.RestoreMode: "merge", settings.LiveLabels: "a", settings.Gate: "true",
	}}
	publish := func(service, name, holder string, annotations set) *coordinationv1.Lease {
		t.Helper()
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: peers.Namespace, Name: name, Labels: set{ring.Label: service}, Annotations: annotations},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
		require.NoError(t, c.Create(t.Context(), l))
		return l
	}
	differing := func() []string {
		t.Helper()
		names, err := peers.Differing(t.Context())
		require.NoError(t, err)
		return names
	}
	published := func(text string) set { return set{settings.Annotation: text} }
	assert.Empty(t, differing(), "there is none")
	publish("processor", "former-release", "former-release", nil)
	publish("processor", "same", "same", published(`{"restore-mode":"merge","live-labels":"a","save-delay":"1s"}`))
	publish("processor", "ended", "", published(`{"restore-mode":"replace"}`))
	publish("watcher", "other-service", "other-service", published(`{"restore-mode":"replace"}`))
	assert.Empty(t, differing())
	other := publish("processor", "other", "other", published(`{"restore-mode":"replace","live-labels":"b"}`))
	publish("processor", "another", "another", published(`{"restore-mode":"replace"}`))
	assert.Equal(t, []string{settings.LiveLabels, settings.RestoreMode}, differing())

	before := other.DeepCopy()
	other.Annotations = published(`{"restore-mode":"of a later release"}`)
	require.NoError(t, c.Patch(t.Context(), other, client.MergeFrom(before)))
	_, err := peers.Differing(t.Context())
	require.ErrorContains(t, err, "reading the settings of processor other: ")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = peers.Differing(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}
