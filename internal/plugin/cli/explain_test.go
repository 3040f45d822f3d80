package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestExplainOfANodeThatOnlyTransactionsKnow: the node was deleted before its labels were saved.
func TestExplainOfANodeThatOnlyTransactionsKnow(t *testing.T) {
	n := &inspect.Node{Name: "node-1", Pending: []inspect.Pending{{
		Transaction: txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("7"), Labels: map[string]string{"rack": "r1"}},
	}}}
	e := newExplained(n, &inspect.Story{}, labels.Policy{})
	assert.Equal(t, inspect.Away, e.State)
	assert.Equal(t, "There is no Node of this name, and no labels are saved for it: only the pending transactions are known.", e.Summary)
}

// TestExplainDoesNotCallWithheldLabelsRestored: they are listed below this sentence.
func TestExplainDoesNotCallWithheldLabelsRestored(t *testing.T) {
	withheld := record.Withheld{Labels: map[string]string{"node-restriction.kubernetes.io/tenant": "a"}, Identity: identity.Identity{SystemUUID: "m-1"}}
	n := &inspect.Node{
		Name: "node-1", Live: &nodeview.Node{Name: "node-1", UID: "u", Labels: map[string]string{"rack": "r1", labels.Marker: "7"}},
		Saved: inspect.Saved{Record: &record.Record{Labels: map[string]string{"rack": "r1", labels.Marker: "7"}, Revision: revision.MustParse("7"), Source: "u", Withheld: []record.Withheld{withheld}}},
	}
	e := newExplained(n, &inspect.Story{}, labels.Policy{})
	assert.Equal(t, inspect.Live, e.State)
	assert.Equal(t, "The node has its saved labels, except for those that are withheld.", e.Summary)
	assert.Empty(t, e.Labels)
	assert.Len(t, e.Withheld, 1)
}

// TestEventsCannotControlTheTerminal: every kubelet may write events with any text, and users may
// set any annotation on a Node.
func TestEventsCannotControlTheTerminal(t *testing.T) {
	const evil = "LabelsSaved: \x1b[2Jnothing happened\x9b1A"
	moments := []inspect.Moment{{At: &metav1.Time{Time: now}, Source: "Event", Text: evil}}
	e := &explained{Story: inspect.Story{Moments: moments}, Labels: []inspect.LabelReason{{Key: "note", Why: evil}}}
	s := &shownNode{Events: moments}
	var printed bytes.Buffer
	e.write(&printed, now)
	s.write(&printed, now)
	printed.WriteString(warningText(&inspect.Warning{Note: evil}, now))
	(&happeningPrinter{w: &printed, now: func() time.Time { return now }}).print(false, inspect.Happening{Text: evil}, true)
	assert.Equal(t, 5, bytes.Count(printed.Bytes(), []byte("\ufffd[2Jnothing happened\ufffd1A")), printed.String())
	assert.NotContains(t, printed.String(), "\x1b")
}
