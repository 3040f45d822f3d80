package apply_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// cluster holds a Node and its record, and logs the calls on them. It implements everything that an
// Applier needs.
type cluster struct {
	node   *nodeview.Node
	says   identity.Identity // the identity of the Node's machine
	now    string            // the revision of all Nodes; "": later than everything
	stored records.Stored
	cached *records.Stored // nil: the cache is current
	rv     int

	calls []string
	// before is called before each call with its name: "get node", "relabel", "cached", "get record"
	// or "write". If it returns an error, the call fails with that error.
	before func(call string) error
	// after is called after each successful call. If it returns an error, the caller gets that error.
	after func(call string) error
	// mutate changes the labels in a write of the Node, as admission plugins do.
	mutate func(set)
	// refuses are the keys of labels that an admission plugin allows no one to change.
	refuses map[string]bool
	// namesNothing reports whether the refusals of these do not name them.
	namesNothing bool
	// refusal returns another refusal of a write of the Node, if it is set.
	refusal func(wanted set) error
	// tooLarge are labels that do not fit in a record.
	tooLarge set

	applied  []string
	renewed  []string
	held     []string
	refused  []string
	oversize []txn.Transaction
	stale    []error

	notGivenBack []error
}

var (
	_ apply.Nodes    = nodeDoor{}
	_ apply.Records  = recordDoor{}
	_ apply.Observer = (*cluster)(nil)
)

func (c *cluster) do(call string, work func() error) error {
	c.calls = append(c.calls, call)
	if c.before != nil {
		if err := c.before(call); err != nil {
			return err
		}
	}
	if err := work(); err != nil {
		return err
	}
	if c.after != nil {
		return c.after(call)
	}
	return nil
}

func (c *cluster) next() revision.Revision {
	c.rv++
	return revision.MustParse(strconv.Itoa(c.rv))
}

type nodeDoor struct{ *cluster }

func (d nodeDoor) Get(context.Context, string) (n *nodeview.Node, err error) {
	err = d.do("get node", func() error {
		n = d.read()
		return nil
	})
	return n, err
}

// read returns the Node with its identity.
func (c *cluster) read() *nodeview.Node {
	if c.node == nil {
		return nil
	}
	n := *c.node
	n.Labels = maps.Clone(n.Labels)
	n.IsWhole, n.Identity, n.Settled = true, c.says, identity.Settled(n.Created, time.Now())
	return &n
}

func (d nodeDoor) Now(context.Context) (now revision.Revision, err error) {
	err = d.do("now", func() error {
		now = revision.MustParse(cmp.Or(d.now, "1000000"))
		return nil
	})
	return now, err
}

func (d nodeDoor) Relabel(_ context.Context, read *nodeview.Node, wanted nodes.Wanted, _ time.Time) (n *nodeview.Node, err error) {
	err = d.do("relabel", func() error {
		if d.node == nil || d.node.UID != read.UID || d.node.Revision != read.Revision {
			return nodes.ErrStale
		}
		if err := d.check(wanted); err != nil {
			return err
		}
		own := maps.Clone(wanted.Labels)
		if d.mutate != nil {
			d.mutate(own)
		}
		d.node.Labels, d.node.Marker, d.node.Revision = own, wanted.Marker, d.next()
		n = d.read()
		return nil
	})
	return n, err
}

func (d nodeDoor) GiveBack(_ context.Context, read *nodeview.Node, to fieldmanagers.Owners) error {
	if to == "" || d.node != nil && to == d.node.Owners {
		return nil
	}
	return d.do("give back", func() error {
		if d.node == nil || d.node.UID != read.UID {
			return nodes.ErrStale
		}
		d.node.Owners, d.node.Revision = to, d.next()
		return nil
	})
}

func (d nodeDoor) TryRelabel(_ context.Context, read *nodeview.Node, wanted nodes.Wanted, _ time.Time) error {
	return d.do("try", func() error {
		if d.node == nil || d.node.UID != read.UID || d.node.Revision != read.Revision {
			return nodes.ErrStale
		}
		return d.check(wanted)
	})
}

// check returns the refusal of a write of the Node, or nil.
func (c *cluster) check(wanted nodes.Wanted) error {
	if c.refuses[labels.Marker] && wanted.Marker != c.node.Marker {
		return c.guarded(labels.Marker)
	}
	for key := range c.refuses {
		former, wasThere := c.node.Labels[key]
		if value, isThere := wanted.Labels[key]; wasThere != isThere || former != value {
			return c.guarded(key)
		}
	}
	if c.refusal != nil {
		return c.refusal(wanted.Labels)
	}
	return nil
}

// guarded returns a refusal of a change of a key.
func (c *cluster) guarded(key string) error {
	if c.namesNothing {
		key = "something"
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New(key+" is guarded"))
}

type recordDoor struct{ *cluster }

func (d recordDoor) Cached(context.Context, string) (s records.Stored, err error) {
	err = d.do("cached", func() error {
		s = d.stored
		if d.cached != nil {
			s = *d.cached
		}
		return nil
	})
	return s, err
}

func (d recordDoor) Get(context.Context, string) (s records.Stored, err error) {
	err = d.do("get record", func() error {
		s = d.stored
		return nil
	})
	return s, err
}

func (d recordDoor) Write(_ context.Context, read records.Stored, next record.Record) (s records.Stored, err error) {
	err = d.do("write", func() error {
		switch {
		case d.tooLarge != nil && maps.Equal(next.Labels, d.tooLarge):
			return records.ErrTooLarge
		case (read.Object == nil) != (d.stored.Object == nil),
			read.Object != nil && read.Object.ResourceVersion != d.stored.Object.ResourceVersion:
			return records.ErrStale
		}
		d.keep(next)
		s = d.stored
		return nil
	})
	return s, err
}

// keep stores r as the record.
func (c *cluster) keep(r record.Record) {
	cm := r.ConfigMap("records")
	cm.ResourceVersion = c.next().String()
	c.stored = records.Stored{Record: &r, Object: cm}
}

func (c *cluster) Applied(_ context.Context, t txn.Transaction, d preserve.Decision, _ *nodeview.Node) {
	c.applied = append(c.applied, fmt.Sprintf("%s: %s", t.Revision, d.Action))
}

func (c *cluster) Withheld(_ context.Context, t txn.Transaction, held preserve.Held) {
	c.held = append(c.held, fmt.Sprintf("%s: %s %s", t.Revision, held.Keys, held.Why))
}

func (c *cluster) Refused(_ context.Context, t txn.Transaction, keys labels.Keys, err error) {
	c.refused = append(c.refused, fmt.Sprintf("%s: %s: %v", t.Revision, keys, err))
}

func (c *cluster) Renewed(_ context.Context, t txn.Transaction) {
	c.renewed = append(c.renewed, t.Revision.String())
}

func (c *cluster) Conflicted(err error) { c.stale = append(c.stale, err) }

func (c *cluster) NotGivenBack(_ context.Context, _ txn.Transaction, err error) {
	c.notGivenBack = append(c.notGivenBack, err)
}

func (c *cluster) TooLarge(_ context.Context, t txn.Transaction, _ error) {
	c.oversize = append(c.oversize, t)
}

func (c *cluster) applier() *apply.Applier {
	return &apply.Applier{Nodes: nodeDoor{c}, Records: recordDoor{c}, Policy: c.policy(), Observer: c}
}

// apply applies transactions, all of which are in the queue.
func (c *cluster) apply(t *testing.T, queue ...txn.Transaction) (settled int, err error) {
	t.Helper()
	return c.applier().Apply(t.Context(), queue, func(context.Context, []txn.Transaction) error { return nil })
}

// mustApply applies all transactions.
func (c *cluster) mustApply(t *testing.T, queue ...txn.Transaction) {
	t.Helper()
	settled, err := c.apply(t, queue...)
	require.NoError(t, err)
	require.Equal(t, len(queue), settled)
}

// policy is the policy of a processor that runs with --same-machine-labels=state/*, and preserves
// all taints and annotations.
func (c *cluster) policy() labels.Policy {
	bound, err := labels.ParseMachineBound("state/*")
	if err != nil {
		panic(err) // a constant
	}
	return labels.Policy{Mode: labels.Replace, MachineBound: bound, Preserves: func(string) bool { return true }}
}
