package preserve_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const tenant = "node-restriction.kubernetes.io/tenant"

func TestAdmit(t *testing.T) {
	t.Parallel()
	machine, other := identity.Identity{SystemUUID: "m1"}, identity.Identity{SystemUUID: "m2"}
	saved := func(own map[string]string) *record.Record {
		return &record.Record{Node: "n", Labels: own, Revision: revision.MustParse("70"), Source: "a"}
	}
	trusted := func(own map[string]string) *record.Record {
		r := saved(own)
		r.Identity = record.Identity{UID: "a", Identity: machine}
		return r
	}
	withheld := func(own map[string]string) *record.Record {
		r := saved(own)
		r.Withheld = []record.Withheld{{Labels: map[string]string{role: ""}, Identity: machine, Source: "before"}}
		return r
	}
	came := map[string]string{"own": "1"}
	ignored, err := labels.ParsePatterns("state")
	require.NoError(t, err)
	heldBack, err := labels.ParsePatterns("policy.example.com/*")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		record   *record.Record
		labels   map[string]string
		machine  labels.Keys
		says     identity.Identity
		marker   string
		gated    bool
		kubelet  bool
		gate     bool
		want     map[string]string
		held     labels.Keys
		wantMark string
	}{
		"no record":           {nil, came, "", machine, "", false, true, true, came, "", ""},
		"floor":               {&record.Record{Revision: revision.MustParse("70"), Floor: true}, came, "", machine, "", false, true, true, came, "", ""},
		"returned":            {saved(map[string]string{"rack": "r1"}), came, "", machine, "", false, false, false, map[string]string{"rack": "r1"}, "", "70"},
		"the machine's":       {saved(map[string]string{"rack": "r1"}), came, "own", machine, "", false, true, false, map[string]string{"rack": "r1", "own": "1"}, "", "70"},
		"empty record":        {saved(nil), came, "own", machine, "", false, true, false, came, "", "70"},
		"reports its machine": {saved(map[string]string{"rack": "r1"}), came, "", machine, "70", false, false, false, map[string]string{"rack": "r1"}, "", "70"},
		"earlier marker":      {saved(map[string]string{"rack": "r1"}), came, "", machine, "60", false, false, false, map[string]string{"rack": "r1"}, "", "70"},
		"gate":                {saved(map[string]string{"rack": "r1"}), came, "", machine, "", false, false, true, map[string]string{"rack": "r1"}, "", labels.Pending},
		"comes gated":         {saved(map[string]string{"rack": "r1"}), came, "", machine, labels.Pending, true, true, false, map[string]string{"rack": "r1"}, "", labels.Pending},
		"kubelet, held":       {trusted(map[string]string{"rack": "r1", role: ""}), came, "", machine, "", false, true, false, map[string]string{"rack": "r1"}, role, labels.Pending},
		"kubelet, its own":    {saved(map[string]string{"k8s.io/a": "2"}), map[string]string{"k8s.io/a": "1"}, "", machine, "", false, true, false, map[string]string{"k8s.io/a": "1"}, "k8s.io/a", labels.Pending},
		"kubelet, same":       {saved(map[string]string{"k8s.io/a": "1"}), map[string]string{"k8s.io/a": "1"}, "", machine, "", false, true, false, map[string]string{"k8s.io/a": "1"}, "", "70"},
		"same machine":        {trusted(map[string]string{"rack": "r1", tenant: "x"}), nil, "", machine, "", false, false, false, map[string]string{"rack": "r1", tenant: "x"}, "", "70"},
		"other machine":       {trusted(map[string]string{"rack": "r1", tenant: "x"}), nil, "", other, "", false, false, false, map[string]string{"rack": "r1"}, tenant, labels.Pending},
		"unknown machine":     {trusted(map[string]string{"rack": "r1", tenant: "x"}), nil, "", identity.Identity{}, "", false, false, false, map[string]string{"rack": "r1"}, tenant, labels.Pending},
		"set by the creator, other machine": {
			trusted(map[string]string{"rack": "r1", tenant: "x"}),
			map[string]string{tenant: "y"},
			"", other, "", false, false, false,
			map[string]string{"rack": "r1", tenant: "y"},
			tenant, labels.Pending,
		},
		"a label for which a user had overruled the machine": {
			saved(map[string]string{"own": "mine"}), came, "own", machine, "", false, true, false, came, "own", labels.Pending,
		},
		"reports its machine, gate": {saved(map[string]string{"rack": "r1"}), came, "", machine, "70", false, false, true, map[string]string{"rack": "r1"}, "", labels.Pending},
		"an annotation that only the processors restore": {
			saved(map[string]string{"rack": "r1", labels.AnnotationKey("a"): "1"}), nil, "", machine, "", false, false, false,
			map[string]string{"rack": "r1"},
			labels.Keys(labels.AnnotationKey("a")), labels.Pending,
		},
		"a label that only the webhook ignores": {
			saved(map[string]string{"rack": "r1", "state": "1"}), nil, "", machine, "", false, false, false,
			map[string]string{"rack": "r1"},
			"state", labels.Pending,
		},
		"held back": {
			saved(map[string]string{"rack": "r1", "policy.example.com/a": "1"}), nil, "", machine, "", false, false, false,
			map[string]string{"rack": "r1"},
			"policy.example.com/a", labels.Pending,
		},
		"held back, as requested": {
			saved(map[string]string{"policy.example.com/a": "1"}),
			map[string]string{"policy.example.com/a": "1"},
			"", machine, "", false, false, false,
			map[string]string{"policy.example.com/a": "1"},
			"", "70",
		},
		"held back, and not saved": {
			saved(map[string]string{"rack": "r1"}),
			map[string]string{"policy.example.com/a": "1"},
			"", machine, "", false, false, false,
			map[string]string{"rack": "r1"},
			"", "70",
		},
		"an annotation that is held back": {
			saved(map[string]string{"rack": "r1", labels.AnnotationKey("policy.example.com/a"): "1"}), nil, "", machine, "", false, false, false,
			map[string]string{"rack": "r1"},
			labels.Keys(labels.AnnotationKey("policy.example.com/a")), labels.Pending,
		},
		"withheld, other machine": {withheld(map[string]string{"rack": "r1"}), nil, "", other, "", false, true, false, map[string]string{"rack": "r1"}, "", "70"},
		"withheld, its machine":   {withheld(map[string]string{"rack": "r1"}), nil, "", machine, "", false, true, false, map[string]string{"rack": "r1"}, role, labels.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeview.Node{Labels: tc.labels, Marker: tc.marker, Identity: tc.says, IsWhole: true, Gated: tc.gated, Ownership: agents.Ownership{Machine: tc.machine}}
			got := preserve.Admit(tc.record, preserve.Request{Node: n, Kubelet: tc.kubelet, HeldBack: heldBack, Gate: tc.gate}, labels.Policy{Mode: labels.Replace, Ignored: ignored})
			assert.Equal(t, tc.want, got.Labels)
			assert.Equal(t, tc.held, got.Held)
			assert.Equal(t, tc.wantMark, got.Marker)
		})
	}
}

// TestStaleResponseMakesNoDifference compares a Node's final labels with a webhook that used an
// older record and without a webhook, except for [isUserLabelOfFormerMachine].
func TestStaleResponseMakesNoDifference(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	live, err := labels.ParsePatterns("live")
	require.NoError(t, err)
	heldBack, err := labels.ParsePatterns("held,two")
	require.NoError(t, err)
	some := func() set {
		own := set{}
		for _, key := range []string{"one", "two", "live", "held", labels.AnnotationKey("note"), labels.TaintKey("dedicated", "NoSchedule")} {
			if g.IntN(2) == 0 {
				own[key] = []string{"x", "y"}[g.IntN(2)]
			}
		}
		return own
	}
	saved := func(rv string) record.Record {
		r := record.Record{Node: "n", Labels: some(), Revision: revision.MustParse(rv), Source: "a"}
		r.Machine, r.Unclear = g.ownership(r.Labels)
		r.Overruled = g.keys(some()).Without(r.Machine)
		return r
	}
	for range 40_000 {
		policy := labels.Policy{Mode: []labels.Mode{labels.Replace, labels.Merge}[g.IntN(2)], Live: live, Preserves: func(string) bool { return true }}
		before, now := saved("70"), saved("80")
		if g.IntN(4) == 0 {
			before = now
		}
		n := nodeview.Node{Labels: some(), IsWhole: true}
		n.Machine, n.Unclear = g.ownership(n.Labels)
		answer := preserve.Admit(&before, preserve.Request{Node: n, Kubelet: g.IntN(2) == 0, HeldBack: heldBack, Gate: g.IntN(4) == 0}, policy)
		with, without := restoredAfter(now, n, answer, policy), restoredAfter(now, n, preserve.Admission{Labels: n.Labels}, policy)
		maps.DeleteFunc(with, func(key, _ string) bool { return isUserLabelOfFormerMachine(now, n, policy, key) })
		maps.DeleteFunc(without, func(key, _ string) bool { return isUserLabelOfFormerMachine(now, n, policy, key) })
		require.Equal(t, without, with, "came as %v (machine %q, unclear %q), answered %v from %v, restored from %v", n.Labels, n.Machine, n.Unclear, answer, before.Labels, now.Labels)
	}
}

// isUserLabelOfFormerMachine reports whether a user creates a Node with a label that the record
// attributes to the former machine. The label then stays, but not if an older record has replaced
// it.
func isUserLabelOfFormerMachine(r record.Record, n nodeview.Node, policy labels.Policy, key string) bool {
	_, isRequested := n.Labels[key]
	return policy.Mode == labels.Replace && labels.IsLabel(key) && isRequested && !n.Machine.Set()[key] && !n.Unclear.Set()[key] && r.Machine.Set()[key]
}

// restoredAfter returns a Node's labels after its Added transaction is applied.
func restoredAfter(r record.Record, came nodeview.Node, answer preserve.Admission, policy labels.Policy) set {
	n := came
	n.UID, n.Revision = "b", revision.MustParse("90")
	n.Labels, n.Marker, n.Gated = answer.Labels, answer.Marker, answer.Gated()
	n.Machine, n.Unclear = came.Machine.Same(came.Labels, n.Labels), came.Unclear.Same(came.Labels, n.Labels)
	n.Admitted = labels.KeysOf(func(yield func(string) bool) {
		for key, value := range n.Labels {
			if before, isThere := came.Labels[key]; (!isThere || before != value) && !yield(key) {
				return
			}
		}
	})
	t := txn.Transaction{Type: txn.Added, Node: "n", UID: n.UID, Revision: n.Revision, Labels: n.Labels, Machine: n.Machine, Unclear: n.Unclear, Marker: n.Marker}
	if d := preserve.Decide(t, &r, &n, policy); d.Action == preserve.Restore {
		return maps.Clone(d.Labels)
	}
	return maps.Clone(n.Labels)
}

func TestUnselectedNodeIsAdmittedUnchanged(t *testing.T) {
	t.Parallel()
	r := &record.Record{Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("70")}
	got := preserve.Admit(r, preserve.Request{Node: nodeview.Node{Unselected: true}, Gate: true}, labels.Policy{Mode: labels.Replace})
	assert.False(t, got.Restores())
}

// returning is a Node that the webhook has admitted, as a restore reads it.
func returning(uid types.UID, rv, marker string, own map[string]string, admitted labels.Keys) *nodeview.Node {
	return &nodeview.Node{UID: uid, Revision: revision.MustParse(rv), Labels: own, Marker: marker, Gated: marker == labels.Pending, Ownership: agents.Ownership{Admitted: admitted}}
}

func addedAs(n *nodeview.Node) txn.Transaction {
	return txn.Transaction{Type: txn.Added, Node: "n", UID: n.UID, Revision: n.Revision, Labels: n.Labels, Marker: n.Marker, FoundsRecord: true}
}

var replacing = labels.Policy{Mode: labels.Replace}

// TestStartOfAnAdmittedNodeThatIsGone: the watcher missed who removed the label of the agents, and
// the start is applied before it stores the end.
func TestStartOfAnAdmittedNodeThatIsGone(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("10"), Source: "first"}
	added := txn.Transaction{
		Type: txn.Added, Node: "node-1", UID: "second", Revision: revision.MustParse("20"), Labels: set{"rack": "r1", "gpu": "a100"}, Machine: "gpu", Marker: "10",
		FoundsRecord: true,
	}
	third := &nodeview.Node{UID: "third", Revision: revision.MustParse("30"), Labels: set{"gpu": "a100"}, Ownership: agents.Ownership{Machine: "gpu"}}
	start := preserve.Decide(added, r, third, replaceAll)
	require.Equal(t, preserve.Save, start.Action)

	ended := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "second", Revision: revision.MustParse("21"), Labels: set{"rack": "r1"}, Marker: "10"}
	assert.Equal(t, labels.Keys("gpu"), preserve.Decide(ended, &start.Record, third, replaceAll).Record.Overruled, "a user may have removed it")
	ended.Withdrawn = "gpu"
	assert.Empty(t, preserve.Decide(ended, &start.Record, third, replaceAll).Record.Overruled, "the agents have removed it")

	added.Marker = ""
	assert.Equal(t, preserve.Nothing, preserve.Decide(added, r, third, replaceAll).Action, "it never had its labels")
}

// The record follows an admitted Node, so the webhook's next response, before the end of this
// incarnation is saved, has the revision that the record keeps.
func TestReturnOfAdmittedNodeIsOnlyNoted(t *testing.T) {
	t.Parallel()
	own := map[string]string{"rack": "r1"}
	r := &record.Record{Node: "n", Labels: own, Revision: revision.MustParse("70"), Source: "a"}
	n := returning("b", "80", "70", own, "labels_restored,rack")
	end := txn.Transaction{Type: txn.Deleted, Node: "n", UID: "a", Revision: revision.MustParse("75"), Labels: own}
	steps := preserve.Plan([]txn.Transaction{end, addedAs(n)}, r, n, replacing)
	assert.Len(t, steps, 1, "one write notes the end and the return")
	assert.Equal(t, preserve.Save, steps[0].Action)
	next := steps[0].Record
	assert.Equal(t, types.UID("b"), next.Source)
	assert.Equal(t, n.Revision, next.Revision)

	admitted := preserve.Admit(&next, preserve.Request{}, replacing)
	again := returning("c", "95", admitted.Marker, own, "labels_restored,rack")
	end = txn.Transaction{Type: txn.Deleted, Node: "n", UID: "b", Revision: revision.MustParse("90"), Labels: own, Marker: "70"}
	steps = preserve.Plan([]txn.Transaction{end, addedAs(again)}, &next, again, replacing)
	assert.Len(t, steps, 1)
	assert.Equal(t, preserve.Save, steps[0].Action)
}

// A label that a user removed last is not restored by a stale response, in either mode.
func TestStaleResponseIsReplaced(t *testing.T) {
	t.Parallel()
	for _, mode := range []labels.Mode{labels.Replace, labels.Merge} {
		r := &record.Record{Node: "n", Labels: map[string]string{"rack": "r2"}, Revision: revision.MustParse("75"), Source: "a", Ended: true}
		n := returning("b", "80", "70", map[string]string{"rack": "r1", "removed": "1"}, "labels_restored,rack,removed")
		d := preserve.Decide(addedAs(n), r, n, labels.Policy{Mode: mode})
		assert.Equal(t, preserve.Restore, d.Action)
		assert.Equal(t, map[string]string{"rack": "r2"}, d.Labels, mode)
	}
}

// The record follows the incarnation, as after a current response.
func TestRestoreAfterStaleResponseCorrectsTheNext(t *testing.T) {
	t.Parallel()
	own := map[string]string{"rack": "r1"}
	r := record.Record{Node: "n", Labels: own, Revision: revision.MustParse("75"), Source: "a"}
	read := returning("b", "80", "70", own, "labels_restored,rack")
	left := returning("b", "81", "75", own, "rack")
	next := preserve.Noted(r, *read, *left, labels.MachineBound{})
	assert.Equal(t, types.UID("b"), next.Source)
	assert.Equal(t, left.Revision, next.Revision)
	assert.Equal(t, own, next.Labels)
}

func TestStartupTaintIsRemoved(t *testing.T) {
	t.Parallel()
	own := map[string]string{"rack": "r1"}
	n := returning("b", "80", labels.Pending, own, "")
	r := func(change func(*record.Record)) *record.Record {
		r := &record.Record{Node: "n", Labels: own, Revision: revision.MustParse("70"), Source: "a"}
		change(r)
		return r
	}
	for name, tc := range map[string]struct {
		record *record.Record
		added  func(*txn.Transaction)
		want   []preserve.Action
	}{
		"with the restore":              {r(func(*record.Record) {}), nil, []preserve.Action{preserve.Restore}},
		"of a new node, after the save": {nil, nil, []preserve.Action{preserve.Save, preserve.Open}},
		"of a new node without a record": {
			nil, func(t *txn.Transaction) { t.FoundsRecord = false }, []preserve.Action{preserve.Open},
		},
		"of a node that was forgotten":    {&record.Record{Node: "n", Revision: revision.MustParse("90"), Floor: true}, nil, []preserve.Action{preserve.Open}},
		"of a node that has its labels":   {r(func(r *record.Record) { r.Restored = record.Restoration{UID: "b", Revision: n.Revision} }), nil, []preserve.Action{preserve.Open}},
		"not of another incarnation":      {r(func(*record.Record) {}), func(t *txn.Transaction) { t.UID = "other" }, []preserve.Action{preserve.Nothing}},
		"not by a change of the same one": {r(func(r *record.Record) { r.Restored.Revision = n.Revision }), func(t *txn.Transaction) { t.Type = txn.Updated }, []preserve.Action{preserve.Nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			added := addedAs(n)
			if tc.added != nil {
				tc.added(&added)
			}
			steps := preserve.Plan([]txn.Transaction{added}, tc.record, n, replacing)
			var got []preserve.Action
			settled := 0
			for _, step := range steps {
				got = append(got, step.Action)
				settled += step.Settles()
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, 1, settled)
			assert.True(t, added.Type != txn.Added || preserve.NeedsNode([]txn.Transaction{added}, tc.record, labels.MachineBound{}))
		})
	}
}

// The labels are the same, but a restore sets others. A node that was admitted with the previous
// record must not count as restored.
func TestRecordedRemovalOfMachineLabelAdvancesRevision(t *testing.T) {
	t.Parallel()
	own := map[string]string{"rack": "r1"}
	r := &record.Record{Node: "n", Labels: own, Revision: revision.MustParse("70"), Source: "a"}
	end := txn.Transaction{Type: txn.Deleted, Node: "n", UID: "a", Revision: revision.MustParse("75"), Labels: own}
	assert.Equal(t, r.Revision, preserve.Decide(end, r, nil, replacing).Record.Revision)

	end.Overruled = "gpu"
	d := preserve.Decide(end, r, nil, replacing)
	assert.Equal(t, end.Revision, d.Record.Revision)
	assert.Equal(t, labels.Keys("gpu"), d.Record.Overruled)

	n := returning("b", "80", "70", map[string]string{"rack": "r1", "gpu": "1"}, "labels_restored,rack")
	n.Machine = "gpu"
	d = preserve.Decide(addedAs(n), &d.Record, n, replacing)
	assert.Equal(t, preserve.Restore, d.Action)
	assert.Equal(t, own, d.Labels)
}

// The record may follow the incarnation because it was forgotten in the meantime.
func TestAddedOfGatedNodeIsNeverSkipped(t *testing.T) {
	t.Parallel()
	n := returning("b", "80", labels.Pending, nil, "")
	r := preserve.Forgotten("n", nil, n, revision.MustParse("85"))
	assert.False(t, preserve.Applied(addedAs(n), r, labels.MachineBound{}))
	assert.Equal(t, preserve.Open, preserve.Decide(addedAs(n), &r, n, replacing).Action)
	n.Gated, n.Marker = false, ""
	assert.True(t, preserve.Applied(addedAs(n), r, labels.MachineBound{}))
}
