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

// registerPolicies adds the controller that installs or removes policies to the manager.
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
	return policies, policies.Register(mgr)
}
