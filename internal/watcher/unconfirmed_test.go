package watcher_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// unconfirmed is a history with an interrupted watch.
func unconfirmed(t *testing.T) *rewind.Detector {
	t.Helper()
	h := rewind.New()
	h.Informers(func(lw toolscache.ListerWatcher, _ runtime.Object, _ time.Duration, _ toolscache.Indexers) toolscache.SharedIndexInformer {
		_, err := toolscache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "9"})
		require.Error(t, err)
		return nil
	})(&toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, errors.New("the API server is down")
	}}, nil, 0, nil)
	require.True(t, h.Unconfirmed(time.Now()))
	return h
}

// cuttable is a history without an interrupted watch. cut ends a watch early, and it resumes at
// once.
func cuttable(t *testing.T) (h *rewind.Detector, cut func()) {
	t.Helper()
	h = rewind.New()
	stream := toolscache.ToListerWatcherWithContext(h.Requests(&toolscache.ListWatch{
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}))
	open := func() {
		w, err := stream.WatchWithContext(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(600))})
		require.NoError(t, err)
		w.Stop()
		require.False(t, h.Unconfirmed(time.Now()))
	}
	open()
	return h, open
}

// watchHistory runs a watcher, whose events come from nodes, until stop is called or the test
// ends.
func watchHistory(t *testing.T, c client.WithWatch, transactionNamespace string, nodes *informer, h *rewind.Detector) (stop func()) {
	t.Helper()
	return watchWithCache(t, c, transactionNamespace, nodes, h)
}

// watchWithCache does the same with stored objects that it knows.
func watchWithCache(t *testing.T, c client.WithWatch, transactionNamespace string, nodes *informer, h *rewind.Detector, known ...*corev1.ConfigMap) (stop func()) {
	t.Helper()
	stored := watcher.NewStored(transactionNamespace, records)
	deliver := &informer{}
	for _, cm := range known {
		obj, err := stored.Transform(cm.DeepCopy())
		require.NoError(t, err)
		deliver.initial = append(deliver.initial, obj)
	}
	cfg := watcher.Config{
		Client: c, Nodes: nodes, Silence: watcher.DefaultSilence, History: h, Events: events.NewFakeRecorder(100), Metrics: prometheus.NewRegistry(),
		TransactionNamespace: transactionNamespace, MetadataNamespace: transactionNamespace, RecordUpdates: true,
	}
	if len(known) > 0 {
		cfg.Stored, cfg.StoredInformer = stored, deliver
	}
	w, err := watcher.New(t.Context(), cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, w.Run(ctx)) })
	wg.Go(func() { assert.NoError(t, w.RunBarrier(ctx)) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.NoError(ct, w.Ready(nil)) }, patience, 10*time.Millisecond)
	return stop
}

func TestUnconfirmedEventIsConfirmedBeforeRecording(t *testing.T) {
	for name, tc := range map[string]struct {
		lost func(*corev1.Node) // changes the watcher's view of an existing Node
		want []string
	}{
		"as it is":                              {func(*corev1.Node) {}, []string{"updated"}},
		"yet to come":                           {func(n *corev1.Node) { n.ResourceVersion += "000" }, []string{}},
		"of one that is not there, yet to come": {func(n *corev1.Node) { n.UID = "lost"; n.ResourceVersion += "000" }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			n := c.addNode(t, "node", set{"rack": "r7"})
			before := state(n.UID, "1", nil)
			tc.lost(n)
			after := state(n.UID, n.ResourceVersion, set{"rack": "r8"})
			before.Name, after.Name = n.Name, n.Name
			nodes, h := &informer{}, unconfirmed(t)
			watchHistory(t, c.WithWatch, c.transactions, nodes, h)
			nodes.OnUpdate(before, after)
			if len(tc.want) == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				require.ErrorIs(t, h.Run(ctx), rewind.ErrRewound)
			}
			c.waitQueued(t, n.Name, tc.want...)
		})
	}
}

// A Node that has changed since etcd was restored contradicts nothing that was seen before.
func TestLeaseIsComparedAfterAnInterruption(t *testing.T) {
	for name, tc := range map[string]struct {
		isInDoubt, isSetBack bool
		failures             int // of the first questions
		wantAsked, want      int // questions, and transactions
	}{
		"it is as it was":        {isInDoubt: true, wantAsked: 2, want: 2},
		"it is unknown at first": {isInDoubt: true, failures: 2, wantAsked: 4, want: 2},
		"it is earlier":          {isInDoubt: true, isSetBack: true, wantAsked: 1},
		"nothing is interrupted": {isSetBack: true, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, asked := rewind.New(), 0
				if tc.isInDoubt {
					h = unconfirmed(t)
				}
				m := startMember(t, 0, func(cfg *watcher.Config) {
					cfg.History = h
					cfg.IsSetBack = func(context.Context) (bool, error) {
						if asked++; asked <= tc.failures {
							return false, errors.New("the API server is down")
						}
						return tc.isSetBack, nil
					}
				})
				m.observeDelete("u1", "10")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if tc.want > 0 {
					m.OnAdd(state("u2", "11", nil), false)
					m.OnDelete(state("u2", "12", nil))
					time.Sleep(5 * time.Second)
					synctest.Wait()
				}
				assert.Equal(t, tc.want, count(t, m.client))
				assert.Equal(t, tc.wantAsked, asked)
				assert.Equal(t, tc.want == 0, h.Rewound())
				m.stop(t)
			})
		})
	}
}

// The cache may have the record or the transaction of a lost future.
func TestNothingIsSkippedWhileUnconfirmed(t *testing.T) {
	for name, stored := range map[string]func(t txn.Transaction, namespace string) *corev1.ConfigMap{
		"by a record": func(t txn.Transaction, _ string) *corev1.ConfigMap {
			return record.Record{Node: t.Node, Labels: t.Labels, Revision: t.Revision, Source: t.UID}.ConfigMap(records)
		},
		"by a transaction": txn.Transaction.ConfigMap,
	} {
		for isInDoubt, want := range map[bool][]string{false: {}, true: {"updated"}} {
			t.Run(fmt.Sprintf("%s, in doubt: %v", name, isInDoubt), func(t *testing.T) {
				c, nodes, h := newCluster(t), &informer{}, rewind.New()
				if isInDoubt {
					h = unconfirmed(t)
				}
				n := c.addNode(t, "node", set{"rack": "r7"})
				after := nodeview.View{}.OfWhole(n.DeepCopy(), time.Now())
				before := state(n.UID, "1", nil)
				before.Name = n.Name
				stop := watchWithCache(t, c.WithWatch, c.transactions, nodes, h, stored(txn.Of(txn.Updated, after), c.transactions))
				nodes.OnUpdate(before, after)
				if len(want) > 0 {
					c.waitQueued(t, n.Name, want...)
				}
				stop() // which stores the remaining events
				c.waitQueued(t, n.Name, want...)
			})
		}
	}
}

// A watcher's conclusion from a missing node may then belong to the lost future, and no live read
// refutes it if the resourceVersions of other objects have advanced.
func TestNothingIsRecordedAfterRewind(t *testing.T) {
	c, nodes, h := newCluster(t), &informer{}, rewind.New()
	stop := watchHistory(t, c.WithWatch, c.transactions, nodes, h)
	nodes.OnUpdate(state("a", "9", nil), state("a", "10", set{"rack": "r7"}))
	c.waitQueued(t, "node-1", "updated")

	nodes.OnUpdate(state("a", "10", set{"rack": "r7"}), state("a", "9", nil))
	nodes.OnDelete(state("a", "11", set{"rack": "lost"}))
	require.True(t, h.Rewound())
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // time for some retries
		require.Len(t, queued(t, c, c.transactions, "node-1"), 1)
	}
	stop()
	c.waitQueued(t, "node-1", "updated")
}

// A restored etcd has assigned the resourceVersion again, to an update of the node that this
// watcher saw deleted. Only a read of the Node proves that.
func TestLostEventIsProvenEvenIfNameIsTaken(t *testing.T) {
	for r := range rank(2) {
		synctest.Test(t, func(t *testing.T) {
			h := unconfirmed(t)
			patches := &faults.Log{Calls: faults.Calls{Verb: faults.Patch}}
			other := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"rack": "r8"}}
			live := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u1", ResourceVersion: "12"}}
			m := startMember(t, r, func(cfg *watcher.Config) {
				cfg.History = h
				cfg.Client = faults.Client(faults.Fake().WithObjects(other.ConfigMap(transactions), live).Build(), patches)
			})
			m.observeDelete("u1", "10")
			time.Sleep(5 * time.Second)
			synctest.Wait()
			assert.True(t, h.Rewound(), "rank %d", r)
			assert.Zero(t, patches.Hits(), "rank %d: what never happened changes nothing", r)
			m.stop(t)
		})
	}
}
