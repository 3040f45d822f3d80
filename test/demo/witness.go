package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/story"
)

// witness prints the events of nodes, transactions and records as they arrive, and measures. It is
// safe for concurrent use.
type witness struct {
	out *story.Screen

	mu   sync.Mutex
	mute bool
	// came is when incarnations of nodes came; quiet and crash are the times from then to their labels.
	came         map[types.UID]time.Time
	quiet, crash []time.Duration
	// stored and done count the transactions that came and went, by their types.
	stored, done map[txn.Type]int
	// locks are the identities of the holders of all locks.
	locks map[string]string
	// victim is the identity of a processor that was killed, taken the first time when a lock of it
	// passed to another one, and heir that processor.
	victim, heir string
	taken        time.Time

	// changed has a value after each event of a lock.
	changed chan struct{}
}

func newWitness(out *story.Screen) *witness {
	return &witness{
		out: out, came: map[types.UID]time.Time{}, stored: map[txn.Type]int{}, done: map[txn.Type]int{},
		locks: map[string]string{}, changed: make(chan struct{}, 1),
	}
}

// start watches from now on, until ctx is done.
func (w *witness) start(ctx context.Context, cfg *rest.Config) error {
	informers, err := cache.New(cfg, cache.Options{DefaultNamespaces: map[string]cache.Config{transactionNamespace: {}, metadataNamespace: {}}})
	if err != nil {
		return fmt.Errorf("watching the cluster: %w", err)
	}
	for _, obj := range []client.Object{&corev1.Node{}, &corev1.ConfigMap{}, &coordinationv1.Lease{}} {
		informer, err := informers.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(w)
		}
		if err != nil {
			return fmt.Errorf("watching the cluster: %w", err)
		}
	}
	go func() { _ = informers.Start(ctx) }()
	if !informers.WaitForCacheSync(ctx) {
		return errors.New("watching the cluster: it cannot be listed")
	}
	return nil
}

// OnAdd implements toolscache.ResourceEventHandler, as the next two do.
func (w *witness) OnAdd(obj any, _ bool) { w.saw("ADDED", nil, obj) }

func (w *witness) OnUpdate(before, obj any) { w.saw("MODIFIED", before, obj) }

func (w *witness) OnDelete(obj any) {
	if last, isMissed := obj.(toolscache.DeletedFinalStateUnknown); isMissed {
		obj = last.Obj
	}
	w.saw("DELETED", nil, obj)
}

func (w *witness) saw(event string, before, obj any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	switch o := obj.(type) {
	case *corev1.Node:
		w.sawNode(at, event, before, o)
		w.showLocked(at, event, "node", o.Name, labelLines(o.Labels))
	case *corev1.ConfigMap:
		if o.Namespace == metadataNamespace {
			w.showLocked(at, event, "record", o.Name, dataLines(o.Data))
			return
		}
		kind := o.Labels[txn.TypeLabel]
		switch event {
		case "ADDED":
			w.stored[txn.Type(kind)]++
		case "DELETED":
			w.done[txn.Type(kind)]++
		}
		w.showLocked(at, event, "transaction", shortName(o.Name)+"  "+txn.TypeLabel+"="+kind, dataLines(o.Data))
	case *coordinationv1.Lease: // not shown: they come and go with every transaction
		w.sawLock(at, event, o)
	}
}

func (w *witness) sawLock(at time.Time, event string, lock *coordinationv1.Lease) {
	before, now := w.locks[lock.Name], ""
	if holder := lock.Spec.HolderIdentity; holder != nil {
		now = *holder
	}
	if event == "DELETED" || now == "" {
		delete(w.locks, lock.Name)
	} else {
		w.locks[lock.Name] = now
		if w.heir == "" && w.victim != "" && before == w.victim && now != before {
			w.heir, w.taken = now, at
		}
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// busiest returns the processor that holds most locks, "" if none holds any. Call it by look.
func (w *witness) busiest() string {
	held := map[string]int{"": 0}
	for _, holder := range w.locks {
		held[holder]++
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(held)), func(a, b string) int { return cmp.Compare(held[a], held[b]) })
}

// sawNode measures how long a node has waited for its labels.
func (w *witness) sawNode(at time.Time, event string, before any, n *corev1.Node) {
	if event == "ADDED" {
		w.came[n.UID] = at
	}
	last, isNode := before.(*corev1.Node)
	if !isNode || last.Labels[labels.Marker] != "" || n.Labels[labels.Marker] == "" {
		return
	}
	latencies := &w.quiet
	if strings.HasPrefix(n.Name, poolPrefix) {
		latencies = &w.crash
	}
	*latencies = append(*latencies, at.Sub(w.came[n.UID]))
}

func (w *witness) showLocked(at time.Time, event, kind, name string, details []string) {
	if w.mute {
		return
	}
	if event == "DELETED" {
		details = nil // they were printed when it came
	}
	w.out.Action(at, kind, fmt.Sprintf("%-8s  %s", event, name), details...)
}

// look calls f while nothing changes.
func (w *witness) look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// figures returns the measured times, and how many transactions there were.
func (w *witness) figures() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []string{
		"From the ADDED event of a node that came back to the MODIFIED event with its labels:",
		"  with both processors     " + spread(w.quiet),
		"  while a processor died   " + spread(w.crash),
		fmt.Sprintf("Transactions: %d added, %d updated, %d deleted", w.stored[txn.Added], w.stored[txn.Updated], w.stored[txn.Deleted]),
	}
}

// spread summarises times.
func spread(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "no restores"
	}
	slices.Sort(latencies)
	return fmt.Sprintf("%2d restores   p50 %7s   max %7s",
		len(latencies), story.InMillis(latencies[(len(latencies)-1)/2]), story.InMillis(latencies[len(latencies)-1]))
}

// shortName abbreviates the name of a transaction.
func shortName(name string) string {
	hash, revision, ok := txn.SplitName(name)
	if !ok {
		return name
	}
	return hash[:8] + "…." + revision.String()
}

// labelLines formats labels as kubectl does.
func labelLines(all map[string]string) []string {
	return lines(all, func(key, value string) string { return key + "=" + value })
}

// dataLines formats the data of a ConfigMap as YAML, several entries a line.
func dataLines(data map[string]string) []string {
	return lines(data, func(key, value string) string {
		if strings.Trim(value, "0123456789") == "" {
			return fmt.Sprintf("%s: %q", key, value)
		}
		return key + ": " + value
	})
}

func lines(all map[string]string, format func(key, value string) string) []string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		words = append(words, format(key, all[key]))
	}
	return story.Wrap(words)
}
