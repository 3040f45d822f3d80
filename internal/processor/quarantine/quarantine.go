// Package quarantine keeps ConfigMaps that are meant as transactions but cannot be read, under names
// that no transaction has, so that they do not block any node; kubectl get cm -l
// nodekeeper.dev/malformed lists them. ConfigMaps of other products are ignored.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/telemetry"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/reasons"
)

// Controller quarantines malformed transactions. All fields are required.
type Controller struct {
	Queue    *queue.Queue
	Index    *queue.Index
	Observer *telemetry.Observer

	mu sync.Mutex
	// found contains the entries to quarantine, by name.
	found map[string]*queue.Entry
}

// Register adds the controller to the manager. The Index must run.
func (c *Controller) Register(mgr manager.Manager) error {
	marks, err := controller.New("malformed", mgr, controller.Options{
		NeedLeaderElection:    new(false),
		SkipNameValidation:    new(true), // one process may run several
		ReconciliationTimeout: job.Timeout,
		Reconciler:            reconcile.Func(c.reconcile),
	})
	if err != nil {
		return fmt.Errorf("creating the controller of malformed transactions: %w", err)
	}
	if err := marks.Watch(job.Transactions(c.Index, c.enqueue)); err != nil {
		return fmt.Errorf("watching malformed transactions: %w", err)
	}
	return nil
}

// enqueue enqueues an entry that must be quarantined. It runs with the index locked.
func (c *Controller) enqueue(e *queue.Entry, work job.Requests) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Malformed == nil || e.Quarantined {
		delete(c.found, e.Name)
		return
	}
	if c.found == nil {
		c.found = map[string]*queue.Entry{}
	}
	c.found[e.Name] = e
	work.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: e.Namespace, Name: e.Name}})
}

// reconcile quarantines a malformed transaction and emits an event with the reason.
func (c *Controller) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.mu.Lock()
	e := c.found[req.Name]
	c.mu.Unlock()
	if e == nil {
		return reconcile.Result{}, nil
	}
	kept, err := c.Queue.Quarantine(ctx, e)
	if errors.Is(err, queue.ErrNameKept) {
		c.Observer.Warn(reference(kept), reasons.TransactionMalformed, "Quarantine",
			"Not applied: %v. A watcher cannot record an event that needs this name: delete this ConfigMap by hand. %v", e.Malformed, err)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if kept != nil {
		logf.FromContext(ctx).Info("Quarantined a malformed transaction", "configMap", req.NamespacedName, "keptAs", kept.Name, "reason", e.Malformed.Error())
		c.Observer.Warn(reference(kept), reasons.TransactionMalformed, "Quarantine", "Kept, but not applied: %v", e.Malformed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found[req.Name] == e { // a later version has its own request
		delete(c.found, req.Name)
	}
	return reconcile.Result{}, nil
}

func reference(cm *corev1.ConfigMap) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
	}
}
