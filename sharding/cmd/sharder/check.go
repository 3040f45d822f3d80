package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
)

// servesRings returns an error unless the API server serves ClusterRings and, if required,
// ControllerRings.
func (o *options) servesRings(ctx context.Context, c client.Client) error {
	err := c.List(ctx, &v1alpha1.ClusterRingList{}, client.Limit(1))
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server does not serve ClusterRings: apply sharding/deploy/crd first: %w", err)
	}
	if err != nil {
		return fmt.Errorf("listing rings: %w", err)
	}
	return o.servesControllerRings(c)
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
