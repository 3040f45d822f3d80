package apply_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

const role = "node-role.kubernetes.io/worker"

var machineA, machineB = identity.Identity{SystemUUID: "a"}, identity.Identity{SystemUUID: "b"}

// trusted is a cluster with a node that has returned, and whose record belongs to machine A.
func trusted(says identity.Identity) *cluster {
	c := returned()
	c.says = says
	r := *c.stored.Record
	r.Labels = set{role: "", "rack": "r1"}
	r.Identity = record.Identity{UID: r.Source, Identity: machineA}
	r.Restored = record.Restoration{}
	c.keep(r)
	return c
}

// recheck applies the transaction that represents the waiting labels of a Node, if there are any.
func (c *cluster) recheck(t *testing.T) error {
	t.Helper()
	tx, waits := preserve.Recheck(*c.stored.Record)
	if !waits {
		return nil
	}
	_, err := c.apply(t, tx)
	return err
}

func TestRestrictedLabelCostsNoFurtherRequest(t *testing.T) {
	t.Parallel()
	c := trusted(machineA)
	c.mustApply(t, added)
	assert.Equal(t, []string{"cached", "get node", "get record", "relabel", "write"}, c.calls)
	assert.Contains(t, c.node.Labels, role)
	assert.Equal(t, record.Identity{UID: c.node.UID, Identity: machineA}, c.stored.Record.Identity)
}

func TestLabelOfAnotherMachineIsWithheldByOneMoreWrite(t *testing.T) {
	t.Parallel()
	c := trusted(machineB)
	r := *c.stored.Record
	r.Labels = set{"state/drained": "", "rack": "r1"}
	c.keep(r)
	c.mustApply(t, added)
	assert.Equal(t, []string{"cached", "get node", "write", "relabel", "write"}, c.calls, "one more write, of what is withheld")
	assert.Equal(t, set{"rack": "r1"}, c.stored.Record.Labels)
	assert.Equal(t, labels.Keys("state/drained"), c.stored.Record.WithheldKeys())
	assert.NotContains(t, c.node.Labels, "state/drained")
}

// The note takes a read, and no more writes.
func TestFirstRestrictedLabelNotesTheMachine(t *testing.T) {
	t.Parallel()
	c := trusted(machineA)
	r := *c.stored.Record
	r.Labels, r.Identity, r.Source = set{"rack": "r1"}, record.Identity{}, c.node.UID
	c.keep(r)
	update := event(txn.Updated, c.node.UID, "1500", set{"rack": "r1", role: ""})
	c.mustApply(t, update)
	assert.Equal(t, []string{"cached", "get node", "write"}, c.calls)
	assert.Equal(t, record.Identity{UID: c.node.UID, Identity: machineA}, c.stored.Record.Identity)
	c.calls = nil
	update.Revision, update.Labels = revision.MustParse("1501"), set{"rack": "r2", role: ""}
	c.says.ProviderID = "p"
	c.mustApply(t, update)
	assert.Equal(t, []string{"cached", "get node", "write"}, c.calls, "the other kind may have come")
	c.calls = nil
	update.Revision, update.Labels = revision.MustParse("1502"), set{"rack": "r3", role: ""}
	c.mustApply(t, update)
	assert.Equal(t, []string{"cached", "write"}, c.calls)
}

// At each call, either the process ends before it, or the answer is lost.
func TestRestrictedLabelsSurviveEveryFault(t *testing.T) {
	t.Parallel()
	errDown := errors.New("down")
	for name, then := range map[string]identity.Identity{"same": machineA, "other": machineB} {
		for fault := 0; ; fault++ {
			c := trusted(identity.Identity{})
			calls, done := 0, false
			fails := func(string) error {
				if calls++; calls == fault/2+1 {
					return errDown
				}
				return nil
			}
			if fault%2 == 0 {
				c.before = fails
			} else {
				c.after = fails
			}
			for round := range 10 {
				if round == 3 {
					c.says = then
				}
				settled, err := c.apply(t, added)
				if err == nil {
					require.Equal(t, 1, settled)
					err = c.recheck(t)
				}
				if err != nil {
					require.ErrorIs(t, err, errDown)
					done = true
				}
			}
			assert.Equal(t, "r1", c.node.Labels["rack"])
			_, has := c.node.Labels[role]
			assert.Equal(t, name == "same", has, "%s, fault %d: %v", name, fault, c.calls)
			assert.Contains(t, c.stored.Record.All(), role, "%s, fault %d", name, fault)
			_, waits := preserve.Recheck(*c.stored.Record)
			assert.False(t, waits, "%s, fault %d", name, fault)
			if !done {
				break
			}
		}
	}
}

// They are reported once for each incarnation and reason.
func TestWithheldLabelsAreReportedOnce(t *testing.T) {
	t.Parallel()
	c := trusted(identity.Identity{})
	for range 3 {
		c.mustApply(t, added)
		require.NoError(t, c.recheck(t))
	}
	c.says = machineB
	for range 3 {
		require.NoError(t, c.recheck(t))
		c.mustApply(t, added)
	}
	reported := slices.Clone(c.held)
	for i := range reported {
		_, reported[i], _ = strings.Cut(reported[i], " ")
	}
	assert.Equal(t, []string{role + " waiting", role + " other-machine"}, reported)
}

// A fault in the decisions must not make a processor write endlessly.
func TestPlansThatSettleNothingEnd(t *testing.T) {
	t.Parallel()
	c := returned()
	a := c.applier()
	a.Plan = func(revision.Revision, []txn.Transaction, *record.Record, *nodeview.Node) []preserve.Step {
		d := preserve.Decision{Action: preserve.Restore, Labels: c.node.Labels, Marker: "1", Again: true}
		return []preserve.Step{{Decision: d, Decisions: []preserve.Decision{d}}}
	}
	settled, err := a.Apply(t.Context(), []txn.Transaction{added}, func(context.Context, []txn.Transaction) error { return nil })
	assert.ErrorContains(t, err, "20 plans in a row settled nothing")
	assert.Zero(t, settled)
}
