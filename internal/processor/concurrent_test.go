package processor_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// outcome is the result of a history, without UIDs and resourceVersions.
type outcome struct {
	Live, Saved set
	Marker      int  // index of the event whose labels were restored; -1 for none
	IsOwned     bool // the record belongs to the node,
	IsCurrent   bool // and has its latest revision
}

// outcomeOf returns the outcome of the history of a node, which consists of the given events.
func (c *cluster) outcomeOf(t *testing.T, n *corev1.Node, all []txn.Transaction) outcome {
	t.Helper()
	after, saved := c.node(t, n.Name), c.record(t, n.Name)
	own, marker := labels.Split(after.Labels)
	return outcome{
		Live: own, Saved: saved.Labels, IsOwned: preserve.Owned(*saved, n.UID, ""),
		Marker:    slices.IndexFunc(all, func(transaction txn.Transaction) bool { return transaction.Revision.String() == marker }),
		IsCurrent: after.ResourceVersion == cmp.Or(saved.Restored.Revision, saved.Revision).String(),
	}
}

// rendezvous blocks the creation of each record until a given number of processors want to create
// it. It does not block later attempts.
type rendezvous struct {
	namespace string
	size      int

	mu   sync.Mutex
	here map[string]*meeting // by node
}

// meeting is the point at which the processors wait for each other.
type meeting struct {
	missing  int
	complete chan struct{} // closed when all have arrived
}

// Do makes the call.
func (r *rendezvous) Do(ctx context.Context, call faults.Call, next func(context.Context) error) error {
	if call.Verb == faults.Create && call.Kind == "ConfigMap" && call.Namespace == r.namespace {
		select {
		case <-r.at(call.Name):
		case <-ctx.Done():
		}
	}
	return next(ctx)
}

// at counts an arrival, and returns a channel that is closed when all have arrived.
func (r *rendezvous) at(node string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.here[node]
	if m == nil {
		if r.here == nil {
			r.here = map[string]*meeting{}
		}
		m = &meeting{missing: r.size, complete: make(chan struct{})}
		r.here[node] = m
	}
	if m.missing--; m.missing == 0 {
		close(m.complete)
	}
	return m.complete
}

// outcomes plays histories to processors that do not use each other's locks. It returns the
// outcomes and the number of late writes.
func (c *cluster) outcomes(t *testing.T, processors int) (all []outcome, late int) {
	t.Helper()
	const count = 6
	nodes, histories, names := make([]*corev1.Node, count), make([][]txn.Transaction, count), make([]string, count)
	for i := range count {
		own := []set{nil, {"new": "n"}, {zone: "b"}}[i%3]
		nodes[i], histories[i] = c.history(t, c.name(fmt.Sprint("node-", i)), own)
		names[i] = nodes[i].Name
	}
	log := &faults.Log{}
	// All processors wait between reading and writing, so that they write at the same time.
	slow := &faults.Slow{Calls: faults.Calls{Verb: faults.Get}, Delay: 10 * time.Millisecond}
	together := &rendezvous{namespace: c.records, size: processors}
	stops := []func(){}
	for range processors {
		stops = append(stops, c.process(t, setup{locks: faults.Fake().Build(), faults: []faults.Fault{log, slow, together}}))
	}
	for _, history := range histories {
		c.put(t, history...)
	}
	c.waitApplied(t, names...)
	for _, stop := range stops { // wait for work in progress
		stop()
	}
	for _, entry := range log.Entries() {
		if entry.Err != nil && entry.Verb != faults.Get {
			late++
		}
	}
	for i, n := range nodes {
		all = append(all, c.outcomeOf(t, n, histories[i]))
	}
	return all, late
}

// The lock only saves work. It does not protect data.
func TestManyProcessorsWithoutLocksHaveTheResultOfOne(t *testing.T) {
	t.Parallel()
	one, _ := newCluster(t).outcomes(t, 1)
	many, late := newCluster(t).outcomes(t, 3)
	assert.Positive(t, late, "they were in each other's way")
	assert.Equal(t, one, many)
	plain := outcome{Live: set{"rack": "r3"}, Saved: set{"rack": "r3"}, Marker: 2, IsOwned: true, IsCurrent: true}
	withLiveLabel := outcome{Live: set{"rack": "r3", zone: "b"}, Saved: set{"rack": "r3", zone: "b"}, Marker: 2, IsOwned: true, IsCurrent: true}
	assert.Equal(t, []outcome{plain, plain, withLiveLabel, plain, plain, withLiveLabel}, one)
}
