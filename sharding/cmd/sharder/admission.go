package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/internal/webhook"
	"nodekeeper.dev/sharding/shardlease"
)

// registerAdmission adds the controllers that install or remove policies and their tables, or
// webhooks, to the manager. The webhooks increment the counter of assignments.
func registerAdmission(
	mgr manager.Manager, o *options, clock *shardlease.ServerClock, reports *ring.Reports, assignments *prometheus.CounterVec,
) (*policy.Controller, error) {
	mode, err := o.admission.Resolve(mgr.GetRESTMapper())
	if err != nil {
		return nil, fmt.Errorf("--admission=%s: %w", o.admission, err)
	}
	fences, err := policy.ServesFences(mgr.GetRESTMapper())
	if err != nil {
		return nil, err //nolint:wrapcheck // the error needs no context
	}
	mgr.GetLogger().Info("Selected the admission mode", "admission", mode, "fences", fences)
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	installed := &policy.Controller{
		Client: mgr.GetClient(), Reports: reports, Dialect: o.dialect(), Namespace: o.namespace, Mode: mode, Fences: fences, SyncPeriod: o.syncPeriod,
		Resources: &policy.Resources{
			Reader: mgr.GetAPIReader(), Discovery: served, Clock: func() time.Time { return clock.Now(time.Now()) }, NeedNoSchema: mode == policy.ByWebhook,
		},
	}
	switch mode {
	case policy.ByPolicy:
		tables := &policy.Tables{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Reports: reports, Dialect: o.dialect(), Namespace: o.namespace, SyncPeriod: o.syncPeriod,
		}
		err = tables.Register(mgr)
	case policy.ByWebhook:
		rings := &webhook.Rings{
			Reader: mgr.GetClient(), Resources: installed.Resources, Dialect: o.dialect(), Namespace: o.namespace, SyncPeriod: o.syncPeriod,
		}
		installed.Webhooks, err = o.webhook.serve(mgr, o.namespace, rings, webhook.New(rings, o.dialect(), assignments))
	case policy.Auto, policy.None:
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // the error needs no context
	}
	return installed, installed.Register(mgr)
}
