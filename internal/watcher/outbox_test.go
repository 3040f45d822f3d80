package watcher_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// outside implements the dependencies of an outbox. The zero value stores everything at once.
type outside struct {
	held   bool
	fails  error
	stored []txn.Transaction
	during func() // during a request
}

func (o *outside) Has(context.Context, txn.Transaction) bool    { return false }
func (o *outside) Passed(watcher.Event) bool                    { return !o.held }
func (o *outside) Wait(watcher.Event, int) (left time.Duration) { return 0 }

func (o *outside) Put(_ context.Context, t txn.Transaction) error {
	if o.during != nil {
		o.during()
		o.during = nil
	}
	if o.fails == nil {
		o.stored = append(o.stored, t)
	}
	return o.fails
}

func newOutbox() (*watcher.Outbox, *outside) {
	o := &outside{}
	return &watcher.Outbox{Stored: o, Store: o, Turn: o}, o
}

// event returns an observed event.
func event(typ txn.Type, uid types.UID, rv, marker string) watcher.Event {
	return watcher.Event{Observed: true, Transaction: txn.Transaction{
		Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(rv), Marker: marker,
	}}
}

func TestOutboxSupersedes(t *testing.T) {
	concluded := event(txn.Updated, "a", "10", "")
	concluded.Observed = false
	later := event(txn.Updated, "a", "10", "")
	later.List = 1
	for name, tc := range map[string]struct {
		second watcher.Event
		first  txn.Type
		want   []string
	}{
		"a change by a later one":           {event(txn.Updated, "a", "10", ""), txn.Updated, []string{"updated a@10"}},
		"a change by the end":               {event(txn.Deleted, "a", "10", ""), txn.Updated, []string{"deleted a@10"}},
		"the start by the end":              {event(txn.Deleted, "a", "10", ""), txn.Added, []string{"deleted a@10"}},
		"no start by a change":              {event(txn.Updated, "a", "10", ""), txn.Added, []string{"added a@9", "updated a@10"}},
		"nothing across a restore":          {event(txn.Updated, "a", "10", "7"), txn.Updated, []string{"updated a@9", "updated a@10"}},
		"nothing of another incarnation":    {event(txn.Deleted, "b", "10", ""), txn.Updated, []string{"updated a@9", "deleted b@10"}},
		"nothing observed by a conclusion":  {concluded, txn.Updated, []string{"updated a@9", "updated a@10"}},
		"nothing that has another barrier":  {later, txn.Updated, []string{"updated a@9", "updated a@10"}},
		"the end of an incarnation is kept": {event(txn.Deleted, "a", "10", ""), txn.Deleted, []string{"deleted a@9", "deleted a@10"}},
	} {
		t.Run(name, func(t *testing.T) {
			box, outside := newOutbox()
			box.Add(event(tc.first, "a", "9", ""))
			box.Add(tc.second)
			_, err := box.Flush(t.Context(), "node-1")
			require.NoError(t, err)
			assert.Equal(t, tc.want, summary(outside.stored))
		})
	}
}

// TestEndMergesStatesInOrder: an end that supersedes the addition and updates knows what happened in
// between, although the label has the same value in the first and the last state.
func TestEndMergesStatesInOrder(t *testing.T) {
	state := func(typ txn.Type, rv string, change func(*txn.Transaction)) watcher.Event {
		e := event(typ, "a", rv, "")
		e.Labels = map[string]string{"rack": "y"}
		change(&e.Transaction)
		return e
	}
	life := []watcher.Event{
		state(txn.Added, "1", func(t *txn.Transaction) { t.Unclear = "rack" }),
		state(txn.Updated, "2", func(t *txn.Transaction) { t.Labels = nil }),
		state(txn.Updated, "3", func(t *txn.Transaction) { t.Machine = "rack" }),
		state(txn.Updated, "4", func(t *txn.Transaction) { t.Labels, t.Overruled = nil, "rack" }),
		state(txn.Updated, "5", func(*txn.Transaction) {}),
		state(txn.Deleted, "6", func(*txn.Transaction) {}),
	}
	for stored := range len(life) - 1 { // so many before the others are seen
		o, out := newOutbox()
		for i, e := range life {
			if o.Add(e); i < stored {
				_, err := o.Flush(t.Context(), "node-1")
				require.NoError(t, err)
			}
		}
		_, err := o.Flush(t.Context(), "node-1")
		require.NoError(t, err)
		require.Len(t, out.stored, stored+1, "the end supersedes the others")
		want := life[stored].Transaction
		for _, e := range life[stored+1:] {
			want = preserve.Merged(want, e.Transaction)
		}
		assert.Equal(t, want, out.stored[stored])
		assert.Empty(t, want.Unclear.Union(want.Machine), "a person set it last")
	}
}

func TestOutboxSupersedesNothingInFlight(t *testing.T) {
	box, outside := newOutbox()
	box.Add(event(txn.Updated, "a", "9", ""))
	outside.during = func() { box.Add(event(txn.Updated, "a", "10", "")) }
	_, err := box.Flush(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, []string{"updated a@9", "updated a@10"}, summary(outside.stored))
}

func TestOutboxHoldsSupersededEvents(t *testing.T) {
	box, outside := newOutbox()
	outside.held = true
	for i := 9; i <= 12; i++ {
		box.Add(event(txn.Updated, "a", strconv.Itoa(i), ""))
	}
	assert.Empty(t, box.Held(revision.MustParse("8"), 1))
	assert.Contains(t, box.Held(revision.MustParse("9"), 1), "node-1", "what was observed then is stored with what came later")
	_, err := box.Flush(t.Context(), "node-1")
	require.ErrorIs(t, err, watcher.ErrHeld)
	outside.held = false
	outside.fails = errors.New("refused")
	_, err = box.Flush(t.Context(), "node-1")
	require.ErrorIs(t, err, outside.fails)
	assert.Equal(t, 1, box.Len("node-1"))
	outside.fails = nil
	_, err = box.Flush(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Empty(t, box.Held(revision.MustParse("100"), 1))
	assert.Equal(t, []string{"updated a@12"}, summary(outside.stored))
}

// refuses is an API server that rejects all writes, because of a quota or missing permissions.
type refuses struct{ faults.Outage }

func (r *refuses) Do(ctx context.Context, call faults.Call, next func(context.Context) error) error {
	err := r.Outage.Do(ctx, call, next)
	if err == nil || call.Verb != faults.Create {
		return err
	}
	return apierrors.NewForbidden(corev1.Resource("configmaps"), call.Name, nil)
}

func TestRejectedEventsDoNotAccumulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create}}}
		w := start(t, &informer{}, refused)
		before := state("a", "1", set{"x": "0"})
		w.OnAdd(before, false)
		for i := 2; i <= 1000; i++ {
			after := state("a", strconv.Itoa(i), set{"x": strconv.Itoa(i)})
			w.OnUpdate(before, after)
			before = after
		}
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, metric(t, w.registry, "nodekeeper_unrecorded_events"), 3.0)
		refused.End()
		time.Sleep(5 * time.Second)
		all := queued(t, w.client, transactions, "node-1")
		assert.Equal(t, "updated a@1000", summary(all)[len(all)-1])
		w.stop(t)
	})
}

// With one backoff for each node, thousands of nodes would send thousands of requests a second.
func TestRejectedWritesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 2000
		refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create}}}
		w := start(t, &informer{}, refused)
		for i := range nodes {
			n := state(types.UID("u"+strconv.Itoa(i)), strconv.Itoa(i+1), nil)
			n.Name = "node-" + strconv.Itoa(i)
			w.OnAdd(n, false)
		}
		time.Sleep(10 * time.Second)
		before := refused.Hits()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, refused.Hits()-before, 3*60, "requests in a minute")
		assert.Positive(t, refused.Hits()-before)
		refused.End()
		time.Sleep(3 * time.Second)
		assert.Equal(t, nodes, count(t, w.client), "all of them, soon after the first success")
		w.stop(t)
	})
}
