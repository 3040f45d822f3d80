package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/txn"
)

// Index holds the transactions of the transaction namespace, by node and in order. [Index.Run]
// keeps it up to date by a list and a watch; it may be behind the API server.
//
// It always holds a consistent state of the API server, because a list takes effect atomically. The
// handlers of an informer get the objects of a list one by one and in any order, and a restore
// planned from a part of a queue would miss the labels in the other part.
//
// It is safe for concurrent use, and must not be copied.
type Index struct {
	mu        sync.Mutex
	byNode    map[string]*nodeQueue
	malformed map[string]*Entry // by name: ConfigMaps that are ours but unreadable
	followers []func(*Entry)
	synced    chan struct{} // closed by the first list
	listed    time.Time     // when the latest list took effect
}

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{byNode: map[string]*nodeQueue{}, malformed: map[string]*Entry{}, synced: make(chan struct{})}
}

var _ toolscache.TransformingStore = (*Index)(nil)

// Run lists and watches until ctx is done. The requests must return exactly the ConfigMaps of the
// transaction namespace.
func (x *Index) Run(ctx context.Context, requests toolscache.ListerWatcher) {
	toolscache.NewReflectorWithOptions(requests, &corev1.ConfigMap{}, x, toolscache.ReflectorOptions{Name: "transactions"}).RunWithContext(ctx)
}

// Synced reports whether the first list has taken effect. Until then, the Index is empty.
func (x *Index) Synced() bool {
	select {
	case <-x.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until the first list has taken effect. It returns the error of ctx if that is
// done first.
func (x *Index) WaitForSync(ctx context.Context) error {
	select {
	case <-x.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Listed returns when the latest list took effect, or zero if none has.
func (x *Index) Listed() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.listed
}

// Follow calls do with every entry in the Index and with each that is added, changed or removed
// from then on, one at a time. The Index is locked during the call: do must return quickly, and
// must not call the Index.
func (x *Index) Follow(do func(*Entry)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followers = append(x.followers, do)
	for _, e := range x.malformed {
		do(e)
	}
	for _, p := range x.byNode {
		p.settle()
		for i := range p.sorted {
			do(&Entry{Transaction: &p.sorted[i].Transaction})
		}
	}
}

// Transformer returns the transform of objects that are added to the Index: it parses each
// transaction once and keeps nothing else of its ConfigMap.
func (x *Index) Transformer() toolscache.TransformFunc {
	return func(obj any) (any, error) { return entryOf(obj), nil }
}

// Add adds a ConfigMap.
func (x *Index) Add(obj any) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := entryOf(obj)
	x.putLocked(e)
	x.notifyLocked(e)
	return nil
}

// Update replaces a ConfigMap.
func (x *Index) Update(obj any) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := entryOf(obj)
	delete(x.malformed, e.Name)
	if e.Transaction == nil { // a user may have broken a transaction
		for _, p := range x.byNode {
			p.dropUID(e.UID)
		}
	}
	x.putLocked(e)
	x.notifyLocked(e)
	return nil
}

// Delete drops a ConfigMap.
func (x *Index) Delete(obj any) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := entryOf(obj)
	delete(x.malformed, e.Name)
	if e.Transaction != nil {
		x.dropLocked(e.queued())
	}
	x.notifyLocked(e)
	return nil
}

// Replace replaces everything by the ConfigMaps of a list, atomically.
func (x *Index) Replace(list []any, _ string) error {
	entries := make([]*Entry, len(list))
	for i, obj := range list {
		entries[i] = entryOf(obj)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	before, malformed := x.byNode, x.malformed
	x.byNode, x.malformed = make(map[string]*nodeQueue, len(before)), map[string]*Entry{}
	for _, e := range entries {
		x.putLocked(e)
	}
	x.listed = time.Now()
	if !x.Synced() {
		close(x.synced)
	}
	for _, e := range entries {
		x.notifyLocked(e)
	}
	x.notifyRemovedLocked(before, malformed)
	return nil
}

// Resync does nothing: the reflector never resyncs.
func (x *Index) Resync() error { return nil }

// Drop drops a transaction that this process has removed from the queue, or has found missing. If
// the watch is interrupted, it may deliver the removal much later.
func (x *Index) Drop(t Queued) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropLocked(t)
}

// Pending returns the transactions of one node, oldest first. The caller must not change them.
// Later changes of the Index do not affect the result.
func (x *Index) Pending(node string) []Queued {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clip(x.pendingLocked(node))
}

// Stock is the content of all queues.
type Stock struct {
	Pending   map[txn.Type]int
	Malformed int
	// Oldest is when the oldest transaction was stored, by the API server's clock, or zero if there
	// is none.
	Oldest time.Time
}

// Stock counts the content of all queues.
func (x *Index) Stock() Stock {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Stock{Pending: map[txn.Type]int{}, Malformed: len(x.malformed)}
	for node := range x.byNode {
		pending := x.pendingLocked(node)
		for i := range pending {
			s.Pending[pending[i].Type]++
			if s.Oldest.IsZero() || pending[i].Created.Before(s.Oldest) {
				s.Oldest = pending[i].Created
			}
		}
	}
	return s
}

// OlderThan returns the nodes whose first transaction was stored before the given time.
func (x *Index) OlderThan(before time.Time) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var nodes []string
	for node := range x.byNode {
		if pending := x.pendingLocked(node); len(pending) > 0 && pending[0].Created.Before(before) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (x *Index) pendingLocked(node string) []Queued {
	p := x.byNode[node]
	if p == nil {
		return nil
	}
	p.settle()
	if len(p.sorted) == 0 {
		delete(x.byNode, node)
	}
	return p.sorted
}

func (x *Index) putLocked(e *Entry) {
	switch {
	case e.Malformed != nil:
		x.malformed[e.Name] = e
	case e.Transaction != nil:
		t := e.queued()
		t.Seen = time.Now()
		p := x.byNode[t.Node]
		if p == nil {
			p = &nodeQueue{}
			x.byNode[t.Node] = p
		}
		p.put(t)
	}
}

func (x *Index) dropLocked(t Queued) {
	if p := x.byNode[t.Node]; p != nil {
		p.drop(t)
	}
}

// notifyLocked passes an entry to the followers, unless it is foreign.
func (x *Index) notifyLocked(e *Entry) {
	if e.Transaction == nil && e.Malformed == nil {
		return
	}
	for _, do := range x.followers {
		do(e)
	}
}

// notifyRemovedLocked passes the entries that a list has removed to the followers.
func (x *Index) notifyRemovedLocked(byNode map[string]*nodeQueue, malformed map[string]*Entry) {
	for node, p := range byNode {
		if p.settle(); x.byNode[node] == nil && len(p.sorted) > 0 {
			x.notifyLocked(&Entry{Transaction: &p.sorted[0].Transaction})
		}
	}
	for name, e := range malformed {
		if x.malformed[name] == nil {
			x.notifyLocked(e)
		}
	}
}
