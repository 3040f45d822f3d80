package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
	"nodekeeper.dev/sharding/internal/policy"
)

// servesRings returns an error unless the API server serves ClusterRings and, if required,
// ControllerRings, and has the Secret that webhooks need.
func (o *options) servesRings(ctx context.Context, c client.Client) error {
	err := c.List(ctx, &v1alpha1.ClusterRingList{}, client.Limit(1))
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server does not serve ClusterRings: apply sharding/deploy/crd first: %w", err)
	}
	if err != nil {
		return fmt.Errorf("listing rings: %w", err)
	}
	if err := o.servesControllerRings(c); err != nil {
		return err
	}
	return o.hasSecret(ctx, c)
}

// hasSecret returns an error if the webhooks need a Secret for their certificate, and it does not
// exist and cannot be created.
func (o *options) hasSecret(ctx context.Context, c client.Client) error {
	mode, err := o.admission.Resolve(c.RESTMapper())
	if err != nil || mode != policy.ByWebhook || o.webhook.certDir != "" {
		return nil //nolint:nilerr // registerAdmission reports it
	}
	err = ensureSecret(ctx, c, o.namespace)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("there must be a Secret %s in namespace %s for the certificate of the webhooks: run kubectl create secret generic %s -n %s, or set --webhook-cert-dir: %w",
			webhookName, o.namespace, webhookName, o.namespace, err)
	}
	if err != nil {
		return fmt.Errorf("reading or creating the Secret %s in namespace %s: %w", webhookName, o.namespace, err)
	}
	return nil
}

// servesControllerRings returns an error if --compat requires ControllerRings and the API server
// does not serve them.
func (o *options) servesControllerRings(c client.Client) error {
	if o.compat == compatNone {
		return nil
	}
	_, err := c.RESTMapper().RESTMapping(compat.Kind.GroupKind(), compat.Kind.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("--compat=%s: the API server does not serve ControllerRings: apply that project's CRD: %w", string(o.compat), err)
	}
	if err != nil {
		return fmt.Errorf("looking up ControllerRings: %w", err)
	}
	return nil
}
