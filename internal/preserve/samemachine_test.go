package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const exclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// bindingTo is a policy with these --same-machine-labels.
func bindingTo(t *testing.T, list string) labels.Policy {
	t.Helper()
	bound, err := labels.ParseMachineBound(list)
	require.NoError(t, err)
	return labels.Policy{Mode: labels.Replace, MachineBound: bound}
}

// drained is the record of a machine that was excluded from load balancers and is away.
func drained(known record.Identity) *record.Record {
	r := trusted(known)
	r.Labels = set{exclude: "", "rack": "r1"}
	return r
}

func TestSameMachineLabelsReturnToTheirMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		known record.Identity
		said  *nodeview.Node
		list  string
		gets  bool
		why   preserve.Why
	}{
		"same machine":                {known: ofA, said: back(machineA), gets: true},
		"another machine":             {known: ofA, said: back(machineB), why: preserve.OtherMachine},
		"another machine, empty list": {known: ofA, said: back(machineB), list: "other", gets: true},
		"another machine, a pattern":  {known: ofA, said: back(machineB), list: "node.kubernetes.io/*", why: preserve.OtherMachine},
		"reports nothing yet":         {known: ofA, said: back(silent), why: preserve.Waiting},
		"was a Node by hand":          {known: record.Identity{UID: "a"}, said: back(machineB), gets: true},
		"was gone before it was read": {said: back(machineA), why: preserve.UnknownMachine},
	} {
		for _, mode := range []labels.RestrictedMode{labels.SameMachine, labels.Keep, labels.Drop} {
			if tc.list == "" {
				tc.list = labels.DefaultSameMachine
			}
			p := bindingTo(t, tc.list)
			p.Restricted = mode
			r, n, held := carriedOut(t, returned("b"), drained(tc.known), tc.said, p)
			assert.Equal(t, "r1", n.Labels["rack"], "%s, %s: a node never waits for its other labels", name, mode)
			_, gets := n.Labels[exclude]
			assert.Equal(t, tc.gets, gets, "%s, %s", name, mode)
			assert.Contains(t, r.All(), exclude, "%s, %s: not lost", name, mode)
			if tc.why == "" {
				assert.Empty(t, held, "%s, %s", name, mode)
			} else {
				assert.Equal(t, []preserve.Held{{Keys: exclude, Why: tc.why}}, held, "%s, %s", name, mode)
			}
		}
	}
}

// A Node that never reports what the machine had reported is another machine in the end, and the
// labels do not wait for ever.
func TestNodeThatReportsSomethingElseIsAnotherMachine(t *testing.T) {
	p := bindingTo(t, exclude)
	for name, tc := range map[string]struct {
		said identity.Identity
		want preserve.Why
	}{
		"another UUID":          {identity.Identity{SystemUUID: "b"}, preserve.OtherMachine},
		"another provider ID":   {identity.Identity{ProviderID: "cloud:///b"}, preserve.OtherMachine},
		"nothing: no kubelet":   {silent, preserve.Waiting},
		"the same UUID":         {identity.Identity{SystemUUID: "a"}, ""},
		"all, and all the same": {machineA, ""},
	} {
		n := back(tc.said)
		r, n, held := carriedOut(t, returned("b"), drained(ofA), n, p)
		n.Settled = true
		look, isWaiting := preserve.Recheck(*r)
		if tc.want == "" {
			assert.False(t, isWaiting, name)
			continue
		}
		assert.Equal(t, []preserve.Held{{Keys: exclude, Why: preserve.Waiting}}, held, name)
		require.True(t, isWaiting, name)
		r, _, held = carriedOut(t, look, r, n, p)
		_, isWaiting = preserve.Recheck(*r)
		assert.Equal(t, tc.want == preserve.Waiting, isWaiting, name)
		assert.Contains(t, r.All(), exclude, name)
		if tc.want == preserve.OtherMachine {
			assert.Equal(t, []preserve.Held{{Keys: exclude, Why: preserve.OtherMachine}}, held, name)
		}
	}
}

// The machine returns after another one had its name.
func TestSameMachineLabelsOutliveOtherMachines(t *testing.T) {
	p := bindingTo(t, exclude)
	r, n, _ := carriedOut(t, returned("b"), drained(ofA), back(machineB), p)
	end := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "b", Revision: revision.MustParse("400000"), Labels: n.Labels}
	r, _ = do(preserve.Decide(end, r, nil, p), r, nil)
	again := back(machineA)
	again.UID, again.Revision = "c", revision.MustParse("500000")
	_, n, held := carriedOut(t, returned("c"), r, again, p)
	assert.Empty(t, held)
	assert.Equal(t, set{exclude: "", "rack": "r1"}, n.Labels)
}

// With *, a name that another machine gets is a new name.
func TestEveryLabelMayBelongToItsMachine(t *testing.T) {
	p := bindingTo(t, "*")
	was := drained(ofA)
	was.Labels["pool"], was.Machine, was.Overruled = "blue", "pool", "zone"
	came := back(machineB)
	came.Labels = set{"pool": "green", "zone": "z2", "rack": "r2"}
	came.Machine = "pool,zone"
	r, n, held := carriedOut(t, returned("b"), was, came, p)
	assert.Equal(t, set{"pool": "green", "zone": "z2", "rack": "r2"}, n.Labels, "not even what a user had removed")
	assert.Equal(t, []preserve.Held{{Keys: exclude, Why: preserve.OtherMachine}}, held, "the node has the other key already")
	assert.Equal(t, set{"pool": "green", "zone": "z2", "rack": "r2", exclude: ""}, r.All())

	came = back(machineA)
	came.Labels, came.Machine = set{"pool": "blue", "zone": "z1"}, "pool,zone"
	_, n, held = carriedOut(t, returned("b"), was, came, p)
	assert.Empty(t, held)
	assert.Equal(t, set{"pool": "blue", "rack": "r1", exclude: ""}, n.Labels, "its user had removed the zone")
}

// A set that was withheld has labels to which different flags apply.
func TestWithheldLabelsOfDifferentModes(t *testing.T) {
	p := bindingTo(t, exclude)
	was := drained(ofA)
	was.Labels[role] = ""
	r, _, held := carriedOut(t, returned("b"), was, back(machineB), p)
	require.Equal(t, []preserve.Held{{Keys: labels.Keys(role + "," + exclude), Why: preserve.OtherMachine}}, held)
	require.Len(t, r.Withheld, 1)

	next := back(machineB)
	next.UID, next.Revision = "c", revision.MustParse("500000")
	p.Restricted = labels.Keep
	_, n, _ := carriedOut(t, returned("c"), r, next, p)
	assert.Equal(t, set{role: "", "rack": "r1"}, n.Labels)

	p.Restricted = labels.Drop
	after, n, held := carriedOut(t, returned("c"), r, next, p)
	assert.Equal(t, set{"rack": "r1"}, n.Labels)
	assert.Equal(t, set{exclude: "", "rack": "r1"}, after.All())
	assert.Contains(t, held, preserve.Held{Keys: role, Why: preserve.Dropped})

	p = bindingTo(t, "")
	_, n, _ = carriedOut(t, returned("c"), r, next, p)
	assert.Equal(t, set{exclude: "", "rack": "r1"}, n.Labels, "it is a label like any other again")
}

func TestWebhookHoldsBackSameMachineLabels(t *testing.T) {
	p := bindingTo(t, exclude)
	for name, tc := range map[string]struct {
		node  *nodeview.Node
		gated bool
	}{
		"same machine":        {back(machineA), false},
		"another machine":     {back(machineB), true},
		"reports nothing yet": {back(silent), true},
	} {
		a := preserve.Admit(drained(ofA), preserve.Request{Node: *tc.node}, p)
		assert.Equal(t, tc.gated, a.Gated(), name)
		_, gets := a.Labels[exclude]
		assert.Equal(t, !tc.gated, gets, name)
	}
}

// Nodes without such labels cost no read of a whole Node.
func TestOnlySameMachineLabelsNeedAnIdentity(t *testing.T) {
	bound := bindingTo(t, labels.DefaultSameMachine).MachineBound
	plain := &record.Record{Node: "node-1", Labels: set{"rack": "r1", "topology.kubernetes.io/zone": "z"}, Revision: revision.MustParse("100"), Source: "a"}
	queue := []txn.Transaction{returned("b")}
	assert.False(t, preserve.NeedsIdentity(queue, plain, bound))
	assert.True(t, preserve.NeedsIdentity(queue, drained(ofA), bound))
	assert.False(t, preserve.NeedsIdentity(queue, drained(ofA), labels.MachineBound{}))
	agents := drained(record.Identity{})
	agents.Machine = exclude
	assert.False(t, preserve.NeedsIdentity(queue, agents, bound), "the agents set it themselves")

	before, after := set{"rack": "r1"}, set{"rack": "r1", exclude: ""}
	assert.True(t, preserve.GainsBound(before, after, "", bound))
	assert.False(t, preserve.GainsBound(after, before, "", bound))
	assert.False(t, preserve.GainsBound(before, after, exclude, bound))
	assert.False(t, preserve.GainsBound(before, set{"rack": "r2"}, "", bound))
}
