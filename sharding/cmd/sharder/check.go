package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
)

// servesRings returns an error unless the API server serves rings.
func (o *options) servesRings(ctx context.Context, c client.Client) error {
	err := c.List(ctx, &v1alpha1.ClusterRingList{}, client.Limit(1))
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server does not know ClusterRings: apply sharding/deploy/crd first: %w", err)
	}
	if err != nil {
		return fmt.Errorf("listing rings: %w", err)
	}
	return o.servesControllerRings(c)
}

// servesControllerRings returns an error if the API server does not serve ControllerRings, and must.
func (o *options) servesControllerRings(c client.Client) error {
	if o.compat == compatNone {
		return nil
	}
	_, err := c.RESTMapper().RESTMapping(compat.Kind.GroupKind(), compat.Kind.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("--compat=%s: the API server does not know ControllerRings: apply the CRD of that project: %w", string(o.compat), err)
	}
	if err != nil {
		return fmt.Errorf("asking the API server for ControllerRings: %w", err)
	}
	return nil
}
