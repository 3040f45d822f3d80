package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler keeps the checksums of each Secret in a ConfigMap that the Secret controls. It
// contains no code for sharding.
type reconciler struct {
	client  client.Client
	work    time.Duration
	journal *journal
}

// Reconcile creates or updates the ConfigMap of a Secret.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the garbage collector deletes the ConfigMap
	}
	if !secret.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if err := r.journal.write("begin", secret); err != nil {
		return reconcile.Result{}, err
	}
	err := r.reconcile(ctx, secret)
	if journalErr := r.journal.write("end", secret); journalErr != nil {
		return reconcile.Result{}, journalErr
	}
	return reconcile.Result{}, err
}

func (r *reconciler) reconcile(ctx context.Context, secret *corev1.Secret) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(r.work):
	}
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: "checksums-" + secret.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, stored, func() error {
		if wanted := checksums(secret); !maps.Equal(stored.Data, wanted) {
			stored.Data = wanted
		}
		return controllerutil.SetControllerReference(secret, stored, r.client.Scheme())
	})
	if err != nil {
		return fmt.Errorf("storing the checksums of Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// checksums returns the SHA-256 of each entry of a Secret.
func checksums(secret *corev1.Secret) map[string]string {
	sums := map[string]string{}
	for key, value := range secret.Data {
		sum := sha256.Sum256(value)
		sums[key] = hex.EncodeToString(sum[:])
	}
	return sums
}
