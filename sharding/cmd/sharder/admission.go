package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

// registerPolicies adds the controllers that install or remove policies and their tables to the
// manager.
func registerPolicies(mgr manager.Manager, o *options, clock *shardlease.ServerClock, reports *ring.Reports) (*policy.Controller, error) {
	mode, err := o.admission.Resolve(mgr.GetRESTMapper())
	if err != nil {
		return nil, fmt.Errorf("--admission=%s: %w", o.admission, err)
	}
	mgr.GetLogger().Info("Selected the admission mode", "admission", mode)
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	policies := &policy.Controller{
		Client: mgr.GetClient(), Reports: reports, Dialect: o.dialect(), Namespace: o.namespace, Mode: mode, SyncPeriod: o.syncPeriod,
		Resources: &policy.Resources{
			Reader: mgr.GetAPIReader(), Discovery: served, Clock: func() time.Time { return clock.Now(time.Now()) },
		},
	}
	if mode == policy.ByPolicy {
		tables := &policy.Tables{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Reports: reports, Dialect: o.dialect(), Namespace: o.namespace, SyncPeriod: o.syncPeriod,
		}
		if err := tables.Register(mgr); err != nil {
			return nil, err //nolint:wrapcheck // the error needs no context
		}
	}
	return policies, policies.Register(mgr)
}
