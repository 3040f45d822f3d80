package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Labels of a machine that belong to the name: a user has given them, or the Node had no identity.
func TestRefusedLabelOfTheNameIsTriedOnTheNextIncarnation(t *testing.T) {
	const role = "node-role.kubernetes.io/worker"
	policy := labels.Policy{Mode: labels.Replace, Restricted: labels.SameMachine}
	userRecord := preserve.UserRecord("node-1", labels.Side{Labels: set{role: "", "team": "blue"}}, revision.MustParse("100"))
	bare := with(neverRestored(), func(r *record.Record) {
		r.Labels = set{role: "", "team": "blue"}
		r.Identity = record.Identity{UID: "source"} // it was read, and has none
	})
	for name, r := range map[string]record.Record{"given by a user": userRecord, "of a Node without an identity": *bare} {
		t.Run(name, func(t *testing.T) {
			n := &nodeview.Node{UID: "b", Revision: revision.MustParse("300"), IsWhole: true, Identity: identity.Identity{SystemUUID: "x"}}
			added := of(txn.Added, event("b", "300", "", nil))
			d := preserve.Decide(added, &r, n, policy)
			require.Equal(t, preserve.Restore, d.Action)
			require.Contains(t, d.Labels, role, "without the refusal, any machine gets it")
			next, done := preserve.SetAside(r, n, set{role: "by policy"}, policy)
			require.True(t, done)
			steps := preserve.Plan([]txn.Transaction{added}, &next, n, policy)
			require.Equal(t, preserve.Restore, steps[0].Action)
			left := *n
			left.Revision, left.Labels, left.Marker = revision.MustParse("310"), steps[0].Labels, steps[0].Marker
			noted := preserve.Noted(next, *n, left, policy.MachineBound)

			c := &nodeview.Node{UID: "c", Revision: revision.MustParse("400"), IsWhole: true, Identity: identity.Identity{SystemUUID: "x"}, Settled: true}
			steps = preserve.Plan([]txn.Transaction{of(txn.Added, event("c", "400", "", nil))}, &noted, c, policy)
			final := set{}
			for _, s := range steps {
				if s.Action == preserve.Restore {
					final = s.Labels
				}
			}
			assert.Contains(t, final, role, "refused labels are tried again on the next incarnation")
		})
	}
}

// The webhook has used an older record, from when the machine had the label. The label is withheld for
// another machine since, and a policy refuses its removal.
func TestWithheldLabelThatCannotBeRemovedFromAnotherMachine(t *testing.T) {
	for name, former := range map[string]identity.Identity{"known": {SystemUUID: "x"}, "unknown": {}} {
		t.Run(name, func(t *testing.T) { testWithheldThatCannotBeRemoved(t, former) })
	}
}

func testWithheldThatCannotBeRemoved(t *testing.T, former identity.Identity) {
	t.Helper()
	const role = "node-role.kubernetes.io/worker"
	policy := labels.Policy{Mode: labels.Replace, Restricted: labels.SameMachine}
	r := *with(neverRestored(), func(r *record.Record) {
		r.Labels = set{"team": "blue"}
		r.Withheld = []record.Withheld{{Labels: set{role: ""}, Source: "a", Identity: former}}
	})
	n := &nodeview.Node{
		UID: "b", Revision: revision.MustParse("300"), IsWhole: true, Identity: identity.Identity{SystemUUID: "y"},
		Labels: set{role: ""}, Ownership: agents.Ownership{Admitted: role},
	}
	added := of(txn.Added, event("b", "300", "", nil))
	require.NotContains(t, preserve.Decide(added, &r, n, policy).Labels, role)
	next, done := preserve.SetAside(r, n, set{role: "by policy"}, policy)
	require.True(t, done)
	parsed, err := record.Parse(next.ConfigMap("records"))
	require.NoError(t, err)
	d := preserve.Decide(added, parsed, n, policy)
	require.Equal(t, preserve.Restore, d.Action)
	assert.Contains(t, d.Labels, role)
	c := &nodeview.Node{UID: "c", Revision: revision.MustParse("400"), IsWhole: true, Identity: identity.Identity{SystemUUID: "y"}}
	for _, s := range preserve.Plan([]txn.Transaction{of(txn.Added, event("c", "400", "", nil))}, parsed, c, policy) {
		assert.NotContains(t, s.Labels, role, "it still belongs to the other machine")
	}
}

// A label that could not be removed from a Node was never saved, also after a user has set another
// one.
func TestLabelThatCannotBeRemovedIsNotSavedByAUser(t *testing.T) {
	policy := labels.Policy{Mode: labels.Replace, Restricted: labels.SameMachine}
	for name, withheld := range map[string][]record.Withheld{"alone": nil, "beside a saved one": {{Labels: set{role: ""}, Source: "a", Identity: machineA}}} {
		r := *with(neverRestored(), func(r *record.Record) { r.Labels, r.Withheld = set{"team": "blue"}, withheld })
		n := &nodeview.Node{UID: "b", Revision: revision.MustParse("300"), IsWhole: true, Identity: machineB, Labels: set{role: "x"}, Ownership: agents.Ownership{Admitted: role}}
		next, done := preserve.SetAside(r, n, set{role: "by policy"}, policy)
		require.True(t, done, name)
		user := preserve.UserRecordAfter(next, set{"team": "red"}, "team", revision.MustParse("400"), policy.MachineBound)
		read, err := record.Parse(user.ConfigMap("records"))
		require.NoError(t, err, name)
		assert.Len(t, read.Withheld, len(withheld), name)
		assert.NotEqual(t, "x", read.All()[role], name)
	}
}
