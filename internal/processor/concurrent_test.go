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
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// outcome is what a history leaves, told without uids and resourceVersions.
type outcome struct {
	Live, Saved set
	Marker      int  // which event's labels the node was given, by its version; -1 for none
	IsOwned     bool // the record says that the node has its labels,
	IsCurrent   bool // and since its last write
}

// outcomeOf returns what the history of a node, whose events are all, has led to.
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

// rendezvous holds the creation of each record until a number of processors want to create it. It does
// not hold later attempts.
type rendezvous struct {
	namespace string
	size      int

	mu   sync.Mutex
	here map[string]*meeting // by node
}

// meeting is where the processors wait for each other.
type meeting struct {
	missing  int
	complete chan struct{} // closed when nobody is missing
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

// outcomes plays histories to processors that do not keep each other out, and returns what they
// lead to, and how many writes came too late.
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
	// Between reading and writing, all of them wait: so they do write at once.
	slow := &faults.Slow{Calls: faults.Calls{Verb: faults.Get}, Delay: 10 * time.Millisecond}
	together := &rendezvous{namespace: c.records, size: processors}
	stops := []func(){}
	for range processors {
		stops = append(stops, c.process(t, setup{locks: fake.NewClientBuilder().Build(), faults: []faults.Fault{log, slow, together}}))
	}
	for _, history := range histories {
		c.put(t, history...)
	}
	c.waitApplied(t, names...)
	for _, stop := range stops { // what one of them still does is done then
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

// TestManyProcessorsWithoutLocksLeaveWhatOneLeaves: the lock saves work, and protects no data.
func TestManyProcessorsWithoutLocksLeaveWhatOneLeaves(t *testing.T) {
	t.Parallel()
	one, _ := newCluster(t).outcomes(t, 1)
	many, late := newCluster(t).outcomes(t, 3)
	assert.Positive(t, late, "they were in each other's way")
	assert.Equal(t, one, many)
	plain := outcome{Live: set{"rack": "r3"}, Saved: set{"rack": "r3"}, Marker: 2, IsOwned: true, IsCurrent: true}
	withLiveLabel := outcome{Live: set{"rack": "r3", zone: "b"}, Saved: set{"rack": "r3", zone: "b"}, Marker: 2, IsOwned: true, IsCurrent: true}
	assert.Equal(t, []outcome{plain, plain, withLiveLabel, plain, plain, withLiveLabel}, one)
}
