package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodes"
)

type set = map[string]string

func newNodes(t *testing.T) *nodes.Nodes {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	return &nodes.Nodes{Client: c}
}

// create creates a Node, which is deleted at the end of the test, and returns it as read.
func create(t *testing.T, n *nodes.Nodes, own set) *metav1.PartialObjectMetadata {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + rand.String(8), Labels: own}}
	require.NoError(t, n.Client.Create(t.Context(), node))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(n.Client.Delete(context.WithoutCancel(t.Context()), node)))
	})
	read, err := n.Get(t.Context(), node.Name)
	require.NoError(t, err)
	return read
}

func TestRelabelSetsExactlyTheseLabels(t *testing.T) {
	n := newNodes(t)
	read := create(t, n, set{"stays": "1", "changes": "1", "goes": "1", "empty": ""})
	wanted := set{"stays": "1", "changes": "2", "comes": "", "empty": ""}
	after, err := n.Relabel(t.Context(), read, wanted)
	require.NoError(t, err)
	assert.Equal(t, wanted, after.Labels)
	assert.Equal(t, read.UID, after.UID)

	now, err := n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	assert.Equal(t, after.ResourceVersion, now.ResourceVersion)
	assert.Equal(t, wanted, now.Labels)
}

func TestWritesAreConditionalOnTheNodeRead(t *testing.T) {
	n := newNodes(t)
	for name, change := range map[string]func(t *testing.T, read *metav1.PartialObjectMetadata){
		"it has changed": func(t *testing.T, read *metav1.PartialObjectMetadata) {
			t.Helper()
			_, err := n.Relabel(t.Context(), read, set{"edited": "1"})
			require.NoError(t, err)
		},
		"it is gone": func(t *testing.T, read *metav1.PartialObjectMetadata) {
			t.Helper()
			require.NoError(t, n.Client.Delete(t.Context(), read.DeepCopy()))
		},
		"it is another incarnation": func(t *testing.T, read *metav1.PartialObjectMetadata) {
			t.Helper()
			require.NoError(t, n.Client.Delete(t.Context(), read.DeepCopy()))
			require.NoError(t, n.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := create(t, n, set{"rack": "r1"})
			change(t, read)
			before, err := n.Get(t.Context(), read.Name)
			require.NoError(t, err)
			_, err = n.Relabel(t.Context(), read, set{"rack": "r2"})
			require.ErrorIs(t, err, nodes.ErrStale)
			after, err := n.Get(t.Context(), read.Name)
			require.NoError(t, err)
			assert.Equal(t, before, after)
		})
	}
}

func TestMissingNodeIsNotAnError(t *testing.T) {
	n := newNodes(t)
	live := create(t, n, nil)
	absent, err := n.Get(t.Context(), "absent-"+rand.String(8))
	require.NoError(t, err)
	assert.Nil(t, absent)

	node, now, err := n.At(t.Context(), "absent-"+rand.String(8))
	require.NoError(t, err)
	assert.Nil(t, node)
	assert.False(t, now.IsZero())

	node, now, err = n.At(t.Context(), live.Name)
	require.NoError(t, err)
	assert.Equal(t, live.UID, node.UID)
	all, err := n.Now(t.Context())
	require.NoError(t, err)
	assert.False(t, now.After(all))
}

func TestRefusedMeansRejectedContent(t *testing.T) {
	resource := schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(resource, "n", errors.New("by policy")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), true},
		{fmt.Errorf("changing: %w", apierrors.NewBadRequest("no")), true},
		{apierrors.NewTooManyRequests("later", 1), false},
		{apierrors.NewInternalError(errors.New("a webhook is away")), false},
		{apierrors.NewServiceUnavailable("starting"), false},
		{errors.New("connection refused"), false},
		{nodes.ErrStale, false},
		{nil, false},
	} {
		assert.Equal(t, tc.want, nodes.Refused(tc.err), "%v", tc.err)
	}
}
