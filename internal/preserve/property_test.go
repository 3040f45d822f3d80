package preserve_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// rounds is enough to reach every row of the decision table hundreds of times.
const rounds = 20_000

// generator makes small worlds, so that UIDs, revisions and labels often coincide.
type generator struct{ *rand.Rand }

func newGenerator(t *testing.T) generator {
	t.Helper()
	const seed = 20261121
	return generator{rand.New(rand.NewPCG(seed, seed))}
}

func (g generator) uid() types.UID { return types.UID([]string{"a", "b", "c"}[g.IntN(3)]) }

func (g generator) rv() string { return strconv.Itoa(g.IntN(12) + 1) } // of one and of two digits

func (g generator) labels() set {
	l := set{"rack": []string{"r1", "r2"}[g.IntN(2)]}
	if g.IntN(4) == 0 { // then a merge has more than the saved labels
		l["zone"] = "b"
	}
	for _, key := range []labels.Keys{taint, annotation} {
		if g.IntN(6) == 0 {
			l[string(key)] = []string{"x", "y"}[g.IntN(2)]
		}
	}
	return l
}

// keys returns a random subset of some labels' keys.
func (g generator) keys(of set) labels.Keys {
	if g.IntN(3) == 0 {
		return ""
	}
	return labels.KeysOf(maps.Keys(of)).Where(func(string) bool { return g.IntN(2) == 0 })
}

// ownership returns the keys of some labels that agents have set, and of some whose setter is
// unknown.
func (g generator) ownership(own set) (machine, unclear labels.Keys) {
	machine = g.keys(own)
	return machine, g.keys(own).Without(machine)
}

// overruled returns keys that are not among the labels.
func (g generator) overruled(own set) labels.Keys {
	return g.keys(set{"zone": "", "gone": "", string(taint): "", string(annotation): ""}).Without(labels.KeysOf(maps.Keys(own)))
}

// edited returns keys that managedFields show as edited, and possibly the marker.
func (g generator) edited(own set) labels.Keys {
	return g.keys(own).Union([]labels.Keys{"", labels.Marker}[g.IntN(2)])
}

func (g generator) marker() string { return []string{"", g.rv()}[g.IntN(2)] }

func (g generator) transaction() txn.Transaction {
	own := g.labels()
	machine, unclear := g.ownership(own)
	rv, marker := g.rv(), g.marker()
	if marker == rv { // a marker is older than its Node
		marker = ""
	}
	return txn.Transaction{
		Type: []txn.Type{txn.Added, txn.Updated, txn.Deleted}[g.IntN(3)], Node: "node-1", UID: g.uid(),
		Revision: revision.Of(rv), Labels: own, Machine: machine, Unclear: unclear, Withdrawn: g.overruled(own), Overruled: g.overruled(own), Edited: g.keys(own).Union(g.overruled(own)), Marker: marker, Restored: g.IntN(2) == 0, FoundsRecord: g.IntN(2) == 0,
	}
}

func (g generator) record() *record.Record {
	own := g.labels()
	machine, unclear := g.ownership(own)
	r := &record.Record{
		Node: "node-1", Labels: own, Machine: machine, Unclear: unclear, Overruled: g.keys(set{"zone": "", "gone": "", string(taint): ""}).Without(machine),
		Revision: revision.Of(g.rv()), Source: g.uid(),
	}
	n := nodeview.Node{UID: g.uid(), Revision: revision.Of(g.rv()), Labels: r.Labels, Ownership: agents.Ownership{Machine: machine, Unclear: unclear}}
	restored := preserve.Noted(*r, *g.returned(), n, labels.MachineBound{})
	floor := preserve.Forgotten("node-1", nil, nil, r.Revision)
	return []*record.Record{nil, r, &restored, &floor}[g.IntN(4)]
}

// node returns a Node that was read after a transaction of one of its states was recorded.
func (g generator) node() *nodeview.Node {
	own := g.labels()
	machine, unclear := g.ownership(own)
	n := &nodeview.Node{
		UID: g.uid(), Revision: revision.Of(strconv.Itoa(g.IntN(12) + 12)), Labels: own, Marker: g.marker(),
		Ownership: agents.Ownership{Machine: machine, Unclear: unclear, Edited: g.edited(own)},
	}
	return []*nodeview.Node{nil, n, n}[g.IntN(3)]
}

// returned returns a Node that exists.
func (g generator) returned() *nodeview.Node {
	for {
		if n := g.node(); n != nil {
			return n
		}
	}
}

func (g generator) policy() labels.Policy {
	keepsAll := func(string) bool { return true }
	return labels.Policy{Mode: []labels.Mode{labels.Replace, labels.Merge}[g.IntN(2)], Preserves: []func(string) bool{nil, keepsAll}[g.IntN(2)]}
}

func TestDecideIsIdempotent(t *testing.T) {
	g := newGenerator(t)
	seen := map[preserve.Action]int{}
	for range rounds {
		tx, r, n, policy := g.transaction(), g.record(), g.node(), g.policy()
		first := preserve.Decide(tx, r, n, policy)
		seen[first.Action]++
		afterRecord, afterNode := apply(first, r, n)
		again := preserve.Decide(tx, afterRecord, afterNode, policy)
		require.Equal(t, preserve.Nothing, again.Action, "%+v on %+v and %+v: %+v and then %+v", tx, r, n, first, again)
	}
	require.Len(t, seen, 3, "every action was met: %v", seen)
}

// An applied transaction never has an effect again: neither on that record nor on a later one.
func TestAppliedStaysApplied(t *testing.T) {
	g := newGenerator(t)
	seen := 0
	for range rounds {
		tx, r, n := g.transaction(), g.record(), g.node()
		if r == nil || !preserve.Applied(tx, *r, labels.MachineBound{}) {
			continue
		}
		seen++
		d := preserve.Decide(tx, r, n, g.policy())
		require.Equal(t, preserve.Nothing, d.Action, "%+v on %+v and %+v: %+v", tx, r, n, d)

		// Later events have later resourceVersions, a marker is older, and another incarnation's
		// node is newer.
		tx.Marker = ""
		later := g.transaction()
		later.Revision, later.Marker = revision.MustParse("20"), ""
		live := &nodeview.Node{UID: later.UID, Revision: revision.MustParse("21"), Labels: g.labels()}
		after, live := apply(preserve.Decide(later, r, live, g.policy()), r, live)
		d = preserve.Decide(tx, after, live, g.policy())
		require.Equal(t, preserve.Nothing, d.Action, "%+v on %+v after %+v: %+v", tx, after, later, d)
	}
	require.Greater(t, seen, rounds/100)
}

// state describes the node in a record: its labels, and the latest state of the incarnation that
// had them.
func state(r *record.Record) string {
	if r == nil {
		return ""
	}
	return fmt.Sprint(r.Labels, r.Machine, r.Unclear, r.Overruled, cmp.Or(r.Restored.UID, r.Source), cmp.Or(r.Restored.Revision, r.Revision))
}

func TestRestoreIsUnnotedUntilItIsNoted(t *testing.T) {
	r := record.Record{Node: "node-1", Revision: revision.MustParse("5"), Source: "a"}
	shown := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "b", Revision: revision.MustParse("9"), Marker: "5"}
	require.True(t, preserve.RestoredUnnoted(shown, r))
	noted := preserve.Noted(r, nodeview.Node{}, nodeview.Node{UID: "b", Revision: revision.MustParse("9")}, labels.MachineBound{})
	require.False(t, preserve.RestoredUnnoted(shown, noted))
	require.True(t, preserve.Applied(shown, noted, labels.MachineBound{}))
	for marker, isUnnoted := range map[string]bool{"": false, "no version": false, "1": false, "100": true} {
		shown.Marker = marker
		require.Equal(t, isUnnoted, preserve.RestoredUnnoted(shown, r), "marker %q, record version %s", marker, r.Revision)
	}
}

// After a crash between the write to the Node and the note in the record, the restore is not
// repeated. Labels on the Node besides the saved ones are saved then.
func TestDecideAfterUnnotedRestoreDoesNotRestore(t *testing.T) {
	g := newGenerator(t)
	noted, replaced := 0, 0
	for range rounds {
		tx, r, n, policy := g.transaction(), g.record(), g.node(), g.policy()
		if n != nil { // as it registered: edits before the restore look like edits since
			tx.Labels, tx.Machine, tx.Unclear, tx.Overruled = n.Labels, n.Machine, n.Unclear, ""
		}
		first := preserve.Decide(tx, r, n, policy)
		if first.Action != preserve.Restore {
			continue
		}
		wantRecord, afterNode := apply(first, r, n)
		if maps.Equal(first.Labels, r.Labels) {
			noted++
		} else {
			replaced++
			wantRecord = &record.Record{
				Node: r.Node, Labels: first.Labels, Machine: wantRecord.Machine, Unclear: wantRecord.Unclear, Overruled: wantRecord.Overruled,
				Revision: afterNode.Revision, Source: afterNode.UID,
			}
		}
		again := preserve.Decide(tx, r, afterNode, policy)
		require.Equal(t, preserve.Save, again.Action, "%+v on %+v and %+v", tx, r, n)
		require.Equal(t, *wantRecord, again.Record)
	}
	require.Positive(t, noted)
	require.Positive(t, replaced)
}

func TestDecideDoesNotModifyArguments(t *testing.T) {
	g := newGenerator(t)
	for range rounds {
		tx, r, n := g.transaction(), g.record(), g.node()
		txLabels, before, beforeNode := maps.Clone(tx.Labels), cloneRecord(r), cloneNode(n)
		policy := g.policy()
		preserve.Decide(tx, r, n, policy)
		preserve.PlanAt(revision.Revision{}, []txn.Transaction{tx, tx}, r, n, policy)
		if n != nil {
			preserve.Forgotten("node-1", nil, n, n.Revision)
			preserve.Admit(r, preserve.Request{Node: *n}, policy)
		}
		if n != nil && r != nil && !r.Floor {
			preserve.Noted(*r, *n, *n, policy.MachineBound)
			preserve.SetAside(*r, n, n.Labels, policy)
		}
		require.Equal(t, txLabels, tx.Labels)
		require.Equal(t, before, r)
		require.Equal(t, beforeNode, n)
	}
}

// The events of one incarnation, applied in any order and any number of times, save the newest
// labels, even if they equal earlier ones.
func TestDecideSavesNewestLabelsInAnyOrder(t *testing.T) {
	g := newGenerator(t)
	for range rounds / 20 {
		follows := []*record.Record{
			nil,
			{Node: "node-1", Labels: set{"n": "0"}, Revision: revision.MustParse("5"), Source: "a"},
			{Node: "node-1", Labels: set{"n": "0"}, Revision: revision.MustParse("5"), Source: "b", Restored: record.Restoration{UID: "a", Revision: revision.MustParse("6")}},
			{Node: "node-1", Labels: set{"n": "0"}, Revision: revision.MustParse("5"), Source: "b"},                                                                            // the restore is not noted
			{Node: "node-1", Labels: set{"n": "0"}, Revision: revision.MustParse("5"), Source: "b", Restored: record.Restoration{UID: "c", Revision: revision.MustParse("6")}}, // nor here
		}
		for _, r := range follows {
			events := g.events()
			newest := events[len(events)-1]
			events = append(events, events...)
			g.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			for _, tx := range events {
				r, _ = apply(preserve.Decide(tx, r, nil, replaceAll), r, nil)
			}
			want := record.Record{Node: "node-1", Labels: newest.Labels, Revision: r.Revision, Source: "a", Restored: r.Restored}
			require.Equal(t, want, *r)
			require.Equal(t, newest.Revision, cmp.Or(r.Restored.Revision, r.Revision), "since then it has them")
		}
	}
}

// events are those of incarnation "a", whose labels were restored after its sixth: it has the
// marker from then on.
func (g generator) events() []txn.Transaction {
	var events []txn.Transaction
	for rv := 1; rv <= 12; rv++ {
		marker := ""
		if rv > 6 {
			marker = "5"
		}
		events = append(events, txn.Transaction{
			Type: txn.Updated, Node: "node-1", UID: "a", Revision: revision.Of(strconv.Itoa(rv)), Marker: marker,
			Labels: set{"n": strconv.Itoa(g.IntN(3))},
		})
	}
	return events
}

// apply executes a decision as a processor does.
func apply(d preserve.Decision, r *record.Record, n *nodeview.Node) (*record.Record, *nodeview.Node) {
	switch d.Action {
	case preserve.Nothing, preserve.Open:
		return r, n
	case preserve.Save:
		return &d.Record, n
	case preserve.Restore:
		after := nodeview.Node{
			UID: n.UID, Revision: revision.MustParse("99"), Labels: d.Labels, Marker: d.Marker,
			Ownership: agents.Ownership{
				Machine: left(n, d, n.Machine), Unclear: left(n, d, n.Unclear), Edited: n.Edited.Same(n.Labels, d.Labels).Union(labels.Marker),
			},
		}
		return new(preserve.Noted(*r, *n, after, labels.MachineBound{})), &after
	}
	panic("unknown action " + d.Action.String())
}

// left returns the keys whose labels a restore leaves unchanged.
func left(n *nodeview.Node, d preserve.Decision, keys labels.Keys) labels.Keys {
	return keys.Where(func(key string) bool { value, ok := d.Labels[key]; return ok && value == n.Labels[key] })
}

func cloneRecord(r *record.Record) *record.Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Labels = maps.Clone(r.Labels)
	return &c
}

func cloneNode(n *nodeview.Node) *nodeview.Node {
	if n == nil {
		return nil
	}
	c := *n
	c.Labels = maps.Clone(n.Labels)
	return &c
}
