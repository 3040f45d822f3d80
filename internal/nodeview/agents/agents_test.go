package agents_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/agents"
)

func parse(t *testing.T, list string) agents.Managers {
	t.Helper()
	m, err := agents.Parse(list)
	require.NoError(t, err)
	return m
}

func entry(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields), Time: &metav1.Time{Time: time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)},
	}
}

// here are the labels of the Nodes in these tests.
var here = set{"zone": "a", "labels_restored": "7"}

const zone = `{"f:metadata":{"f:labels":{".":{},"f:zone":{}}}}`

func TestOwnershipOfUnreadableFieldsClaimsNothing(t *testing.T) {
	for name, managed := range map[string][]metav1.ManagedFieldsEntry{
		"no entries":                    nil,
		"no agent":                      {entry("kubectl", zone)},
		"no fields":                     {{Manager: "kubelet"}},
		"no labels":                     {entry("kubelet", `{"f:metadata":{"f:annotations":{"f:a":{}}}}`), entry("kubectl", zone)},
		"an agent's of another format":  {entry("kubelet", `["f:labels"]`)},
		"another's of another format":   {entry("kubelet", zone), entry("kubectl", `{"f:labels"`)},
		"the marker":                    {entry("kubelet", `{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`)},
		"the labels as a whole":         {entry("kubelet", `{"f:metadata":{"f:labels":{}}}`)},
		"a manager with a similar name": {entry("kubelet2", zone), entry("my-kubelet", zone)},
	} {
		t.Run(name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: here, ManagedFields: managed}}
			assert.Empty(t, parse(t, "kubelet").Of(&n.ObjectMeta).Machine)
		})
	}
}

// The order of the entries does not matter. If an entry cannot be read, no key is the webhook's.
func TestWebhookOwnsOnlyUnsharedKeys(t *testing.T) {
	both := entry(agents.Webhook, `{"f:metadata":{"f:labels":{"f:zone":{},"f:rack":{},"f:gone":{},"f:labels_restored":{}}}}`)
	for name, tc := range map[string]struct {
		other metav1.ManagedFieldsEntry
		want  labels.Keys
	}{
		"an agent's":                  {entry("kubelet", zone), "labels_restored,rack"},
		"a person's":                  {entry("kubectl", zone), "labels_restored,rack"},
		"forgotten":                   {entry("ancient-changes", zone), "labels_restored,rack"},
		"applied in the same name":    {entry(agents.Webhook, zone), "labels_restored,rack"},
		"an agent's of a new format":  {entry("kubelet", `["f:labels"]`), ""},
		"forgotten and of another":    {entry("ancient-changes", `["f:labels"]`), ""},
		"of a manager without labels": {entry("kubectl", `{"f:spec":{}}`), "labels_restored,rack,zone"},
		"of a manager without fields": {metav1.ManagedFieldsEntry{Manager: "kubectl"}, "labels_restored,rack,zone"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, entries := range [][]metav1.ManagedFieldsEntry{{both, tc.other}, {tc.other, both}} {
				if entries[0].Manager == agents.Webhook && entries[1].Manager == agents.Webhook {
					entries = []metav1.ManagedFieldsEntry{both, tc.other} // the first is the webhook's own
				}
				n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					Labels: set{"zone": "a", "rack": "r1", "labels_restored": "7", "own": "1"}, ManagedFields: entries,
				}}
				o := parse(t, "kubelet").Of(&n.ObjectMeta)
				assert.Equal(t, tc.want, o.Admitted)
				assert.NotContains(t, string(o.Machine), "rack", "labels restored by the webhook are not the machine's")
			}
		})
	}
}

func TestZeroManagersClaimNothing(t *testing.T) {
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: here, ManagedFields: []metav1.ManagedFieldsEntry{entry("", zone), entry("kubelet", zone)}}}
	for _, none := range []agents.Managers{{}, parse(t, ""), parse(t, " , ")} {
		o := none.Of(&n.ObjectMeta)
		assert.Empty(t, o.Machine)
		assert.Empty(t, o.Unclear)
	}
}

func TestParseRejectsInvalidNames(t *testing.T) {
	for list, want := range map[string]string{
		"kubelet,*":        "nothing would be restored",
		"a*b":              `unreadable name "a*b"`,
		"kube let":         `unreadable name "kube let"`,
		"kubelet=karpente": "use the name of a field manager",
	} {
		_, err := agents.Parse(list)
		require.ErrorContains(t, err, want, "%q", list)
	}
	_, err := agents.Parse(agents.Default)
	require.NoError(t, err)
}

func BenchmarkOwnership(b *testing.B) {
	managers, err := agents.Parse(agents.Default)
	if err != nil {
		b.Fatal(err)
	}
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: here, ManagedFields: []metav1.ManagedFieldsEntry{
		entry("kubelet", `{"f:metadata":{"f:annotations":{".":{},"f:volumes.kubernetes.io/controller-managed-attach-detach":{}},"f:labels":{".":{},`+
			`"f:beta.kubernetes.io/arch":{},"f:beta.kubernetes.io/os":{},"f:eks.amazonaws.com/capacityType":{},"f:eks.amazonaws.com/nodegroup":{},`+
			`"f:eks.amazonaws.com/nodegroup-image":{},"f:kubernetes.io/arch":{},"f:kubernetes.io/hostname":{},"f:kubernetes.io/os":{}}},"f:spec":{"f:providerID":{}}}`),
		entry("kubectl-label", `{"f:metadata":{"f:labels":{"f:example.com/rack":{},"f:example.com/team":{}}}}`),
		entry("kubelet", `{"f:status":{"f:conditions":{},"f:images":{},"f:nodeInfo":{}}}`),
	}}}
	b.ReportAllocs()
	for b.Loop() {
		managers.Of(&n.ObjectMeta)
	}
}
