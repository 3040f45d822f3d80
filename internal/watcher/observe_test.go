package watcher_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

type set = map[string]string

// observed is when all events in these tables were observed.
var observed = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

// state is one state of node-1.
func state(uid types.UID, resourceVersion string, own set) *nodeview.Node {
	n := &nodeview.Node{Name: "node-1", UID: uid, Revision: revision.MustParse(resourceVersion)}
	n.Labels, n.Marker = labels.Split(own)
	return n
}

// sent is a state of a node as an API server sends it.
func sent(n *nodeview.Node) *metav1.PartialObjectMetadata {
	own := maps.Clone(n.Labels)
	if n.Marker != "" {
		own[labels.Marker] = n.Marker
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.Revision.String(), Labels: own},
	}
}

// received is the transform of an informer: it turns a Node that was sent into its state.
func received(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	n := state(m.UID, m.ResourceVersion, m.Labels)
	n.Name = m.Name
	return n, nil
}

// unselected is a state that --node-selector does not match.
func unselected(uid types.UID, resourceVersion string, own set) *nodeview.Node {
	n := state(uid, resourceVersion, own)
	n.Unselected = true
	return n
}

func TestObserve(t *testing.T) {
	added := func(uid types.UID, rv string, own set, marker string) txn.Transaction {
		return txn.Transaction{Type: txn.Added, Node: "node-1", UID: uid, Revision: revision.Of(rv), Labels: own, Marker: marker, ObservedAt: observed, FoundsRecord: true}
	}
	of := func(typ txn.Type, uid types.UID, rv string, own set, marker string) txn.Transaction {
		return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.Of(rv), Labels: own, Marker: marker, ObservedAt: observed}
	}
	for name, tc := range map[string]struct {
		before, after *nodeview.Node
		want          []txn.Transaction
	}{
		"nothing":              {},
		"add":                  {after: state("a", "5", set{"rack": "r7"}), want: []txn.Transaction{added("a", "5", set{"rack": "r7"}, "")}},
		"add without labels":   {after: state("a", "5", nil), want: []txn.Transaction{added("a", "5", set{}, "")}},
		"add with a marker":    {after: state("a", "5", set{"rack": "r7", labels.Marker: "3"}), want: []txn.Transaction{added("a", "5", set{"rack": "r7"}, "3")}},
		"delete":               {before: state("a", "5", set{"rack": "r7"}), want: []txn.Transaction{of(txn.Deleted, "a", "5", set{"rack": "r7"}, "")}},
		"delete with a marker": {before: state("a", "5", set{labels.Marker: "3"}), want: []txn.Transaction{of(txn.Deleted, "a", "5", set{}, "3")}},
		"label changed":        {state("a", "5", set{"rack": "r7"}), state("a", "6", set{"rack": "r8"}), []txn.Transaction{of(txn.Updated, "a", "6", set{"rack": "r8"}, "")}},
		"label added":          {state("a", "5", nil), state("a", "6", set{"rack": ""}), []txn.Transaction{of(txn.Updated, "a", "6", set{"rack": ""}, "")}},
		"label removed":        {state("a", "5", set{"rack": ""}), state("a", "6", nil), []txn.Transaction{of(txn.Updated, "a", "6", set{}, "")}},
		"key changed":          {state("a", "5", set{"x": "1"}), state("a", "6", set{"y": "1"}), []txn.Transaction{of(txn.Updated, "a", "6", set{"y": "1"}, "")}},
		"restore":              {state("a", "5", set{"new": "n"}), state("a", "6", set{"rack": "r7", labels.Marker: "3"}), []txn.Transaction{of(txn.Updated, "a", "6", set{"rack": "r7"}, "3")}},
		"heartbeat":            {before: state("a", "5", set{"rack": "r7"}), after: state("a", "6", set{"rack": "r7"})},
		"resync":               {before: state("a", "5", set{"rack": "r7"}), after: state("a", "5", set{"rack": "r7"})},
		"marker came":          {before: state("a", "5", set{"rack": "r7"}), after: state("a", "6", set{"rack": "r7", labels.Marker: "3"})},
		"marker changed":       {before: state("a", "5", set{labels.Marker: "3"}), after: state("a", "6", set{labels.Marker: "4"})},
		"gate closed by hand":  {state("a", "5", set{"rack": "r7", labels.Marker: "3"}), state("a", "6", set{"rack": "r8", labels.Marker: labels.Pending}), []txn.Transaction{added("a", "6", set{"rack": "r8"}, labels.Pending)}},
		"gate stays closed":    {before: state("a", "5", set{labels.Marker: labels.Pending}), after: state("a", "6", set{labels.Marker: labels.Pending})},
		"gate opened":          {before: state("a", "5", set{labels.Marker: labels.Pending}), after: state("a", "6", nil)},
		"marker went":          {before: state("a", "5", set{labels.Marker: "3"}), after: state("a", "6", nil)},
		"no labels, two ways":  {before: state("a", "5", nil), after: state("a", "6", set{})},
		"other incarnation": {state("a", "5", set{"rack": "r7"}), state("b", "9", set{"new": "n"}), []txn.Transaction{
			of(txn.Deleted, "a", "5", set{"rack": "r7"}, ""), added("b", "9", set{"new": "n"}, ""),
		}},
		"other incarnation with the same labels": {state("a", "5", set{"rack": "r7"}), state("b", "9", set{"rack": "r7"}), []txn.Transaction{
			of(txn.Deleted, "a", "5", set{"rack": "r7"}, ""), added("b", "9", set{"rack": "r7"}, ""),
		}},
		"not selected: add":               {after: unselected("a", "5", set{"rack": "r7"})},
		"not selected: change":            {before: unselected("a", "5", nil), after: unselected("a", "6", set{"rack": "r7"})},
		"not selected: delete":            {before: unselected("a", "5", set{"rack": "r7"})},
		"not selected: other incarnation": {before: unselected("a", "5", nil), after: unselected("b", "9", nil)},
		"begins":                          {unselected("a", "5", nil), state("a", "6", set{"rack": "r7"}), []txn.Transaction{added("a", "6", set{"rack": "r7"}, "")}},
		"begins by an ignored label":      {unselected("a", "5", nil), state("a", "6", nil), []txn.Transaction{added("a", "6", set{}, "")}},
		"begins with another incarnation": {unselected("a", "5", nil), state("b", "9", nil), []txn.Transaction{added("b", "9", set{}, "")}},
		"ceases":                          {before: state("a", "5", nil), after: unselected("a", "6", set{"rack": "r7"})},
		"ceases with another incarnation": {state("a", "5", nil), unselected("b", "9", nil), []txn.Transaction{of(txn.Deleted, "a", "5", set{}, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := watcher.Observer{RecordUpdates: true}.Observe(tc.before, tc.after, observed)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, withoutUpdates(tc.want), watcher.Observer{}.Observe(tc.before, tc.after, observed), "while updates are not recorded")
		})
	}
}

// withoutUpdates removes the transactions that are only recorded with RecordUpdates.
func withoutUpdates(all []txn.Transaction) []txn.Transaction {
	var rest []txn.Transaction
	for _, transaction := range all {
		if transaction.Type == txn.Updated {
			continue
		}
		transaction.FoundsRecord = false
		rest = append(rest, transaction)
	}
	return rest
}

// The taint may have been removed in the gap, and added again, so a processor must remove it.
func TestGatedNodeAfterGap(t *testing.T) {
	o := watcher.Observer{RecordUpdates: true}
	gated := func(rv string, own set) *nodeview.Node {
		own[labels.Marker] = labels.Pending
		return state("a", rv, own)
	}
	before := gated("5", set{"rack": "r7"})
	for name, after := range map[string]*nodeview.Node{"the same labels": gated("9", set{"rack": "r7"}), "other labels": gated("9", set{"rack": "r8"})} {
		got := o.ObserveAfterGap(before, after, observed)
		require.Len(t, got, 1, name)
		assert.Equal(t, txn.Added, got[0].Type, name)
		assert.Equal(t, labels.Pending, got[0].Marker, name)
	}
	assert.Empty(t, o.ObserveAfterGap(before, before, observed), "nothing has happened")
	assert.Empty(t, o.Observe(before, gated("9", set{"rack": "r7"}), observed), "nothing was missed")
	opened := state("a", "9", set{"rack": "r8"})
	assert.Equal(t, o.Observe(before, opened, observed), o.ObserveAfterGap(before, opened, observed))
	assert.Equal(t, o.Observe(before, nil, observed), o.ObserveAfterGap(before, nil, observed))
}

func TestCatchUp(t *testing.T) {
	saved := record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("3"), Source: "a", Restored: record.Restoration{UID: "b", Revision: revision.MustParse("5")}}
	for name, tc := range map[string]struct {
		node         *nodeview.Node
		record       *record.Record
		want         txn.Type // "" for nothing
		wantAddsOnly txn.Type // without RecordUpdates
	}{
		"no record":                            {state("a", "9", set{"rack": "r7"}), nil, txn.Added, txn.Added},
		"no record, but a marker":              {state("a", "9", set{"rack": "r7", labels.Marker: "3"}), nil, txn.Added, txn.Added},
		"not owned":                            {state("c", "9", set{"new": "n"}), &saved, txn.Added, txn.Added},
		"not owned, with the very same labels": {state("c", "9", set{"rack": "r7"}), &saved, txn.Added, txn.Added},
		"not owned, marker of another version": {state("c", "9", set{"rack": "r7", labels.Marker: "2"}), &saved, txn.Added, txn.Added},
		"source, unchanged":                    {state("a", "9", set{"rack": "r7"}), &saved, "", ""},
		"source, unchanged, with a marker":     {state("a", "9", set{"rack": "r7", labels.Marker: "2"}), &saved, "", ""},
		"source, changed":                      {state("a", "9", set{"rack": "r8"}), &saved, txn.Updated, ""},
		"source, all labels gone":              {state("a", "9", nil), &saved, txn.Updated, ""},
		"restored, unchanged":                  {state("b", "9", set{"rack": "r7", labels.Marker: "3"}), &saved, "", ""},
		"restored, changed":                    {state("b", "9", set{"rack": "r8", labels.Marker: "3"}), &saved, txn.Updated, ""},
		"restored but not noted, unchanged":    {state("c", "9", set{"rack": "r7", labels.Marker: "3"}), &saved, txn.Added, txn.Added},
		"restored but not noted, changed":      {state("c", "9", set{labels.Marker: "3"}), &saved, txn.Added, txn.Added},
		"source, behind the startup taint":     {state("a", "9", set{"rack": "r7", labels.Marker: labels.Pending}), &saved, txn.Added, txn.Added},
		"not selected, no record":              {unselected("a", "9", nil), nil, "", ""},
		"not selected, changed":                {unselected("a", "9", nil), &saved, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, transactionOf(tc.node, tc.want, true), watcher.Observer{RecordUpdates: true}.CatchUp(tc.node, tc.record, false, observed))
			assert.Equal(t, transactionOf(tc.node, tc.wantAddsOnly, false), watcher.Observer{}.CatchUp(tc.node, tc.record, false, observed), "while updates are not recorded")
		})
	}
}

// transactionOf is the transaction of that type that records this state of a node.
func transactionOf(n *nodeview.Node, typ txn.Type, recordUpdates bool) []txn.Transaction {
	if typ == "" {
		return nil
	}
	return []txn.Transaction{{
		Type: typ, Node: n.Name, UID: n.UID, Revision: n.Revision, Labels: n.Labels, Marker: n.Marker,
		ObservedAt: observed, FoundsRecord: typ == txn.Added && recordUpdates,
	}}
}

// Pending transactions may be about to replace labels that match the record now.
func TestCatchUpWithPendingTransactions(t *testing.T) {
	saved := record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("3"), Source: "a"}
	owned, other := state("a", "9", set{"rack": "r7"}), state("c", "9", set{"rack": "r7"})
	for _, o := range []watcher.Observer{{RecordUpdates: true}, {}} {
		want := map[bool]txn.Type{true: txn.Updated}[o.RecordUpdates]
		assert.Equal(t, transactionOf(owned, want, o.RecordUpdates), o.CatchUp(owned, &saved, true, observed))
		assert.Equal(t, transactionOf(other, txn.Added, o.RecordUpdates), o.CatchUp(other, &saved, true, observed))
	}
}
