package inspect_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestLabelReasons: a node returned, and its return is pending or not.
func TestLabelReasons(t *testing.T) {
	live, err := labels.ParsePatterns("kubernetes.io/arch")
	assert.NoError(t, err)
	policy := labels.Policy{Mode: labels.Replace, Live: live, Restricted: labels.SameMachine}
	saved := map[string]string{"rack": "r7", "pool": "old", "kubernetes.io/arch": "amd64", "same": "s"}
	now := map[string]string{"kubernetes.io/arch": "arm64", "extra": "e", "same": "s"}
	returned := recorded(txn.Added, "b", "30", now)
	edited := recorded(txn.Updated, "a", "20", map[string]string{"rack": "r8", "new": "n", "kubernetes.io/arch": "amd64", "same": "s"})
	for name, tc := range map[string]struct {
		pending []inspect.Pending
		want    map[string]string
	}{
		"the return is pending": {[]inspect.Pending{returned}, map[string]string{
			"rack":               "the pending restore sets it",
			"pool":               "only the agents of the former machine had set it: it is not restored",
			"kubernetes.io/arch": "it stays as the node has it",
			"extra":              "it is not saved: the pending restore removes it",
		}},
		"an edit before it, too": {[]inspect.Pending{edited, returned}, map[string]string{
			"rack":               "the pending transactions save it as r8, and restore that",
			"new":                "the pending transactions save it as n, and restore that",
			"pool":               "only the agents of the former machine had set it: it is not restored",
			"kubernetes.io/arch": "it stays as the node has it",
			"extra":              "it is not saved: the pending restore removes it",
		}},
		"nothing is pending": {nil, map[string]string{
			"rack":               "changed after the labels were saved, and not saved yet",
			"pool":               "only the agents of the former machine had set it: it is not restored",
			"kubernetes.io/arch": "a live label: that of this machine counts",
			"extra":              "set after the labels were saved, and not saved yet",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &inspect.Node{
				Name: "node-1",
				Live: &nodeview.Node{Name: "node-1", UID: "b", Revision: revision.MustParse("30"), Labels: now},
				Saved: inspect.Saved{Record: &record.Record{
					Node: "node-1", Labels: saved, Machine: labels.KeysOf(slices.Values([]string{"pool"})), Revision: revision.MustParse("10"), Source: "a",
				}},
				Pending: tc.pending,
			}
			got := map[string]string{}
			for _, reason := range n.LabelReasons(policy) {
				got[reason.Key] = reason.Why
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func recorded(typ txn.Type, uid types.UID, version string, of map[string]string) inspect.Pending {
	p := inspect.Pending{}
	p.Transaction = txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(version), Labels: of}
	return p
}

// TestStoryOfOneSecond: the times of Nodes and records have no fractions, and a node can be back in
// the second in which its labels were saved.
func TestStoryOfOneSecond(t *testing.T) {
	second := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	event := func(reason string, uid types.UID, after time.Duration) *eventsv1.Event {
		e := warning(reason, uid, 0)
		e.Name, e.EventTime, e.ReportingController = reason, metav1.NewMicroTime(second.Add(after)), "nodekeeper-processor"
		return e
	}
	n := &inspect.Node{
		Name:  "node-1",
		Live:  &nodeview.Node{Name: "node-1", UID: "new", Created: second},
		Saved: inspect.Saved{Record: &record.Record{Node: "node-1", Revision: revision.MustParse("10"), Source: "old", SavedAt: second}},
	}
	story, err := clusterOf(
		event("a-restored", "new", 900*time.Millisecond),
		event("b-saved-again", "old", 300*time.Millisecond),
		event("c-saved", "old", 200*time.Millisecond),
		event("d-before", "old", -time.Millisecond),
	).Story(t.Context(), n, labels.Policy{})
	require.NoError(t, err)
	var all []string
	for _, m := range story.Moments {
		word, _, _ := strings.Cut(m.Text, " ")
		all = append(all, m.Source+" "+word)
	}
	assert.Equal(t, []string{"Event d-before:", "Record labels", "Event c-saved:", "Event b-saved-again:", "Node the", "Event a-restored:"}, all)
}
