package processor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// MalformedLabel marks what is in the transaction namespace and is no readable
// transaction: kubectl get cm -l nodekeeper.dev/malformed lists it.
const MalformedLabel = "nodekeeper.dev/malformed"

// addMalformed makes the manager mark what is no transaction.
func (p *Processor) addMalformed(mgr manager.Manager) error {
	loop, err := addProbes(mgr, "malformed")
	if err != nil {
		return err
	}
	malformed, err := controller.New("malformed", mgr, controller.Options{
		NeedLeaderElection: new(false),
		SkipNameValidation: new(true), // as the controller of nodes
		UsePriorityQueue:   new(usePriorityQueue),
		Reconciler:         probed(loop, p.reconcileMalformed),
	})
	if err != nil {
		return fmt.Errorf("making the controller of malformed transactions: %w", err)
	}
	if err := malformed.Watch(beats()); err != nil {
		return fmt.Errorf("giving the controller of malformed transactions its beats: %w", err)
	}
	if err := malformed.Watch(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(p.ifMalformed))); err != nil {
		return fmt.Errorf("watching malformed transactions: %w", err)
	}
	return nil
}

func (p *Processor) ifMalformed(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
	if cm.Namespace != p.transactionNamespace || malformation(cm) == nil || isMarked(cm) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(cm)}}
}

// reconcileMalformed marks a ConfigMap that is no transaction and says why in an event. It is never deleted.
func (p *Processor) reconcileMalformed(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var cm corev1.ConfigMap
	if err := p.client.Get(ctx, req.NamespacedName, &cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // gone: nothing to mark
	}
	reason := malformation(&cm)
	if reason == nil || isMarked(&cm) {
		return reconcile.Result{}, nil
	}
	err := p.mark(ctx, &cm)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // it changed: the change brings it here again
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("marking %s as malformed: %w", req.NamespacedName, err)
	}
	logf.FromContext(ctx).Info("Marked a malformed transaction", "configMap", req.NamespacedName, "reason", reason.Error())
	p.events.Eventf(&cm, nil, corev1.EventTypeWarning, "TransactionMalformed", "Mark", "%s",
		note("Kept, but not applied: %v", reason))
	return reconcile.Result{}, nil
}

// mark puts the label on, conditional on the ConfigMap that was read.
func (p *Processor) mark(ctx context.Context, cm *corev1.ConfigMap) error {
	return p.patchMetadata(ctx, cm, map[string]any{
		"resourceVersion": cm.ResourceVersion,
		"labels":          map[string]string{MalformedLabel: "true"},
	})
}

// malformation says why a ConfigMap in the transaction namespace is no transaction, nil if it is one, or not ours to judge.
func malformation(cm *corev1.ConfigMap) error {
	if cm.Name == record.RootCAName {
		return nil
	}
	_, err := txn.Parse(cm)
	return err
}

func isMarked(cm *corev1.ConfigMap) bool { return cm.Labels[MalformedLabel] == "true" }
