package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestNodeMadeFromACopy: a person creates a Node from what kubectl get -o yaml printed, so that the
// API server names the person for each label. The person has chosen none of the machine's values.
func TestNodeMadeFromACopy(t *testing.T) {
	all := set{"pool": "a", "zone": "a", "rack": "r1"}
	registered := has{all, "pool,zone", "", ""}
	copied := has{labels: all}
	for name, tc := range map[string]struct {
		story []has
		want  set // the labels of the next machine
	}{
		"nothing":               {nil, set{"pool": "b", "zone": "b", "rack": "r1"}},
		"another label changes": {[]has{{labels: set{"pool": "a", "zone": "a", "rack": "r2"}}}, set{"pool": "b", "zone": "b", "rack": "r2"}},
		"a person changes it":   {[]has{{labels: set{"pool": "mine", "zone": "a", "rack": "r1"}}}, set{"pool": "mine", "zone": "b", "rack": "r1"}},
		"a person changes it, and it is as it was": {
			[]has{{labels: set{"pool": "mine", "zone": "a", "rack": "r1"}}, {labels: all}}, set{"pool": "a", "zone": "b", "rack": "r1"},
		},
		"a person removes it":         {[]has{{labels: set{"zone": "a", "rack": "r1"}}}, set{"zone": "b", "rack": "r1"}},
		"an agent sets it":            {[]has{{set{"pool": "c", "zone": "a", "rack": "r1"}, "pool", "", ""}}, set{"pool": "b", "zone": "b", "rack": "r1"}},
		"an agent, and then a person": {[]has{{set{"pool": "c", "zone": "a", "rack": "r1"}, "pool", "", ""}, {labels: set{"pool": "c", "zone": "a", "rack": "r1"}}}, set{"pool": "c", "zone": "b", "rack": "r1"}},
		"its manager is forgotten":    {[]has{{labels: all, unclear: "pool,zone"}, copied}, set{"pool": "b", "zone": "b", "rack": "r1"}},
		"an agent withdraws it":       {[]has{{labels: set{"zone": "a", "rack": "r1"}, withdrawn: "pool"}}, set{"pool": "b", "zone": "b", "rack": "r1"}},
	} {
		for copies := 1; copies <= 2; copies++ {
			t.Run(name, func(t *testing.T) {
				l := &life{t: t}
				l.event(txn.Added, "first", registered)
				l.event(txn.Deleted, "first", registered)
				l.event(txn.Added, "copy", copied)
				if copies == 2 {
					l.event(txn.Deleted, "copy", copied)
					l.event(txn.Added, "copy of the copy", copied)
				}
				uid, last := l.node.UID, copied
				for _, now := range tc.story {
					l.event(txn.Updated, uid, now)
					last = now
				}
				l.event(txn.Deleted, uid, last)
				d := l.event(txn.Added, "next", has{set{"pool": "b", "zone": "b"}, "pool,zone", "", ""})
				require.Equal(t, preserve.Restore, d.Action)
				assert.Equal(t, tc.want, d.Labels)
			})
		}
	}
}

// What only the former machine had is not restored after a copy either.
func TestCopyThatTheNextMachineDoesNotHave(t *testing.T) {
	l := &life{t: t}
	registered := has{set{"pool": "a", "rack": "r1"}, "pool", "", ""}
	l.event(txn.Added, "first", registered)
	l.event(txn.Deleted, "first", registered)
	l.event(txn.Added, "copy", has{labels: registered.labels})
	l.event(txn.Deleted, "copy", has{labels: registered.labels})
	assert.Equal(t, set{"rack": "r1"}, l.event(txn.Added, "next", has{labels: set{}}).Labels)
}

// A value that the former machine did not have has been chosen.
func TestCopyWithAnotherValue(t *testing.T) {
	l := &life{t: t}
	registered := has{set{"pool": "a"}, "pool", "", ""}
	l.event(txn.Added, "first", registered)
	l.event(txn.Deleted, "first", registered)
	l.event(txn.Added, "copy", has{labels: set{"pool": "mine"}})
	l.event(txn.Deleted, "copy", has{labels: set{"pool": "mine"}})
	assert.Equal(t, set{"pool": "mine"}, l.event(txn.Added, "next", has{set{"pool": "b"}, "pool", "", ""}).Labels)
}

// A role that a person has created the Node with is trusted as a person's.
func TestRestrictedLabelsAreNotCopied(t *testing.T) {
	l := &life{t: t, policy: labels.Policy{Mode: labels.Replace, Restricted: labels.Keep}}
	registered := has{set{"node-role.kubernetes.io/gpu": ""}, "node-role.kubernetes.io/gpu", "", ""}
	l.event(txn.Added, "first", registered)
	l.event(txn.Deleted, "first", registered)
	l.event(txn.Added, "copy", has{labels: registered.labels})
	assert.Empty(t, l.record.Machine)
	l.event(txn.Deleted, "copy", has{labels: registered.labels})
	assert.Equal(t, registered.labels, l.event(txn.Added, "next", has{labels: set{}}).Labels)
}

// TestCopyInEveryOrderOfEvents: the copy has its former marker, or the webhook has answered, so the
// processors only note or save.
func TestCopyInEveryOrderOfEvents(t *testing.T) {
	saved := func() *record.Record {
		return &record.Record{Node: "node-1", Labels: set{"pool": "a", "rack": "r1"}, Machine: "pool", Revision: revision.MustParse("5"), Source: "first", Ended: true}
	}
	added := txn.Transaction{
		Type: txn.Added, Node: "node-1", UID: "copy", Revision: revision.MustParse("10"), Labels: set{"pool": "a", "rack": "r1"}, Marker: "5", FoundsRecord: true,
	}
	live := nodeview.Node{UID: "copy", Revision: revision.MustParse("12"), Labels: added.Labels, Marker: "5"}
	changed := live
	changed.Labels = set{"pool": "a", "rack": "r2"}
	admitted := live
	admitted.Admitted = "labels_restored,rack"
	for name, tc := range map[string]struct {
		t txn.Transaction
		n *nodeview.Node
	}{
		"noted":                  {added, &live},
		"noted, admitted":        {added, &admitted},
		"replaced by what it is": {added, &changed},
		"gone":                   {added, nil},
		"its end comes first":    {txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "copy", Revision: revision.MustParse("12"), Labels: added.Labels, Marker: "5"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := preserve.Decide(tc.t, saved(), tc.n, replaceAll)
			require.Equal(t, preserve.Save, d.Action)
			assert.Equal(t, labels.Keys("pool"), d.Record.Machine)
			r, _, _ := carriedOut(t, txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "copy", Revision: revision.MustParse("20"), Labels: changed.Labels}, &d.Record, nil, replaceAll)
			next := labels.Side{Labels: set{"pool": "b"}, Machine: "pool"}
			assert.Equal(t, set{"pool": "b", "rack": "r2"}, replaceAll.Restored(next, preserve.Saved(*r)))
		})
	}
}

// A key that a user names in an edit of the record is the user's.
func TestEditOfACopy(t *testing.T) {
	saved := labels.Side{Labels: set{"pool": "a", "zone": "a"}, Machine: "pool,zone", Copied: "pool,zone"}
	edited := preserve.Edited(saved, set{"pool": "a", "zone": "a"}, "pool")
	r := preserve.UserRecord("node-1", edited, revision.MustParse("7"))
	assert.Equal(t, labels.Side{Labels: edited.Labels, Machine: "zone", Copied: "zone", Overruled: "pool"}, preserve.Saved(r))
}

// The end of an incarnation comes before the note of its restore: what the restore has set is still
// unclear.
func TestEndBeforeTheNoteKeepsUnclearLabels(t *testing.T) {
	r := &record.Record{Node: "node-1", Labels: set{"tier": "old", "rack": "r1"}, Unclear: "tier", Revision: revision.MustParse("5"), Source: "first", Ended: true}
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "second", Revision: revision.MustParse("12"), Labels: r.Labels, Marker: "5"}
	d := preserve.Decide(end, r, nil, replaceAll)
	require.Equal(t, preserve.Save, d.Action)
	next := labels.Side{Labels: set{"tier": "new"}, Unclear: "tier"}
	assert.Equal(t, set{"tier": "new", "rack": "r1"}, replaceAll.Restored(next, preserve.Saved(d.Record)))
}
