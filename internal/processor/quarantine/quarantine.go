// Package quarantine marks ConfigMaps that are meant as transactions but cannot be read. They are
// kept and do not block any node; kubectl get cm -l nodekeeper.dev/malformed lists them. ConfigMaps
// of other products are ignored.
package quarantine

import (
	"context"
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

// Controller marks malformed transactions. All fields are required.
type Controller struct {
	Queue    *queue.Queue
	Index    *queue.Index
	Observer *telemetry.Observer

	mu sync.Mutex
	// found contains the entries to mark, by name.
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

// enqueue enqueues an entry that must be marked. It runs with the index locked.
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

// reconcile marks a malformed transaction and emits an event with the reason. It deletes nothing.
func (c *Controller) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c.mu.Lock()
	e := c.found[req.Name]
	c.mu.Unlock()
	if e == nil {
		return reconcile.Result{}, nil
	}
	marked, err := c.Queue.Quarantine(ctx, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	if marked {
		logf.FromContext(ctx).Info("Quarantined a malformed transaction", "configMap", req.NamespacedName, "reason", e.Malformed.Error())
		regarding := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion,
		}
		c.Observer.Warn(regarding, reasons.TransactionMalformed, "Mark", "Kept, but not applied: %v", e.Malformed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found[req.Name] == e { // a later version has its own request
		delete(c.found, req.Name)
	}
	return reconcile.Result{}, nil
}
