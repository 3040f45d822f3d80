package watcher_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/internal/watcher"
)

const headStart = 5 * time.Second

// listed is what the API server of a test answers to a list, and how its watches are ended.
type listed struct {
	nodes   []metav1.PartialObjectMetadata
	watches chan *watch.FakeWatcher
}

func (l *listed) listerWatcher() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: l.nodes}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, errors.New("this API server is older than lists by watch")
			}
			w := watch.NewFakeWithChanSize(10, false)
			l.watches <- w
			return w, nil
		},
	}
}

// startListing runs a watcher with a head start whose informer is a real one.
func startListing(t *testing.T, from *listed) *running {
	t.Helper()
	from.watches = make(chan *watch.FakeWatcher, 10)
	listings := &watcher.Listings{}
	nodes := listings.NewInformer(from.listerWatcher(), &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	r := &running{client: fake.NewClientBuilder().Build(), done: make(chan error, 1)}
	w, err := watcher.New(watcher.Config{
		Client: r.client, Nodes: nodes, Listings: listings, HeadStart: headStart,
		Events: events.NewFakeRecorder(100), Metrics: prometheus.NewRegistry(),
		TransactionNamespace: transactions, MetadataNamespace: records, RecordUpdates: true,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	informerCtx, stopInformer := context.WithCancel(t.Context())
	r.cancel, r.ready = cancel, w.Ready
	go nodes.RunWithContext(informerCtx)
	go func() {
		defer stopInformer() // a manager ends its informers last
		r.done <- w.Run(ctx)
	}()
	time.Sleep(time.Second)
	return r
}

func TestWatcherThatStartsLeavesOthersAHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &listed{nodes: []metav1.PartialObjectMetadata{*state("a", "8", nil)}}
		w := startListing(t, from)
		(<-from.watches).Delete(state("a", "9", nil))
		time.Sleep(headStart - 2*time.Second)
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"added a@8", "deleted a@9"}, summary(queued(t, w.client, transactions, "node-1")))
		assert.Zero(t, w.stop(t))
	})
}

func TestWatcherThatListsAnewLeavesOthersAHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &listed{nodes: []metav1.PartialObjectMetadata{*state("a", "8", nil)}}
		w := startListing(t, from)
		first := <-from.watches
		time.Sleep(time.Minute)
		first.Modify(state("a", "9", set{"rack": "r7"}))
		first.Modify(state("a", "10", set{"rack": "r7"}))
		synctest.Wait()
		require.Equal(t, []string{"added a@8", "updated a@9"}, summary(queued(t, w.client, transactions, "node-1")), "while it watches it records at once")

		from.nodes = []metav1.PartialObjectMetadata{*state("b", "15", nil)}
		expired := apierrors.NewResourceExpired("too old resource version").Status()
		first.Error(&expired)
		<-from.watches // the list is done
		time.Sleep(headStart - time.Millisecond)
		assert.Len(t, queued(t, w.client, transactions, "node-1"), 2)
		time.Sleep(2 * time.Millisecond)
		assert.Equal(t, []string{"added a@8", "updated a@9", "deleted a@10", "added b@15"}, summary(queued(t, w.client, transactions, "node-1")))
		w.stop(t)
	})
}

func TestStopEndsTheHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &listed{}
		w := startListing(t, from)
		first := <-from.watches
		first.Add(state("a", "8", nil))
		synctest.Wait()
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		assert.Less(t, w.stop(t), drainTimeout)
		assert.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")), "it may be the only one that has seen it")
	})
}

func TestWatcherIsReadyOnceItRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startListing(t, &listed{})
		require.Error(t, w.ready(nil))
		time.Sleep(headStart)
		require.NoError(t, w.ready(nil))
		w.stop(t)
	})
}
