package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/queue"
)

// RunIndex makes the manager maintain an index of the transaction namespace, and adds a readiness
// check that passes after the first list. The detector may be nil.
func RunIndex(mgr manager.Manager, index *queue.Index, namespace string, detector *rewind.Detector) error {
	rest, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("ConfigMap"), false, false, mgr.GetConfig(), scheme.Codecs, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating the client that watches transactions: %w", err)
	}
	requests := detector.Requests(toolscache.NewListWatchFromClient(rest, "configmaps", namespace, fields.Everything()))
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		index.Run(ctx, requests)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the watch of transactions: %w", err)
	}
	err = mgr.AddReadyzCheck("transactions", func(*http.Request) error {
		if !index.Synced() {
			return errors.New("transactions not listed yet: check the log for failing lists and watches")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness probe of transactions: %w", err)
	}
	return nil
}

// Transactions returns a controller source that calls enqueue with every entry of the index that is
// added, changed or removed, see [queue.Index.Follow]. The controller starts when the index has
// synced.
func Transactions(index *queue.Index, enqueue func(*queue.Entry, Requests)) source.SyncingSource {
	return transactions{index, enqueue}
}

type transactions struct {
	index   *queue.Index
	enqueue func(*queue.Entry, Requests)
}

// Start calls enqueue with entries for as long as the index runs.
func (s transactions) Start(_ context.Context, work Requests) error {
	s.index.Follow(func(e *queue.Entry) { s.enqueue(e, work) })
	return nil
}

// WaitForSync waits until the index has synced.
func (s transactions) WaitForSync(ctx context.Context) error { return s.index.WaitForSync(ctx) }
