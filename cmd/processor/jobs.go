package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/processor/job"
	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/processor/quarantine"
	"nodekeeper.dev/internal/processor/retention"
	"nodekeeper.dev/internal/processor/retention/removal"
	"nodekeeper.dev/internal/processor/telemetry"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/sharding/shardlease"
)

// jobs holds the dependencies that the jobs of a processor share.
type jobs struct {
	client   client.Client
	nodes    *nodes.Nodes
	records  *records.Records
	queue    *queue.Queue
	index    *queue.Index
	locks    *nodelock.Locker
	observer *telemetry.Observer
	applier  *apply.Applier
}

func newJobs(mgr manager.Manager, o *options, policy labels.Policy, clock *shardlease.ServerClock) (*jobs, error) {
	c := mgr.GetClient()
	observer, err := telemetry.NewObserver(mgr.GetEventRecorder("nodekeeper-"+program), metrics.Registry)
	if err != nil {
		return nil, err
	}
	j := &jobs{
		client:   c,
		nodes:    &nodes.Nodes{Client: c, View: o.View, Clock: nodes.OrLocal(clock.Now)},
		records:  &records.Records{Client: c, Cache: mgr.GetCache(), Namespace: o.MetadataNamespace},
		queue:    &queue.Queue{Client: c, Namespace: o.TransactionNamespace},
		index:    queue.NewIndex(),
		locks:    nodelock.New(c, o.TransactionNamespace, o.Identity),
		observer: observer,
	}
	j.applier = &apply.Applier{Nodes: j.nodes, Records: j.records, Policy: policy, Observer: observer}
	return j, nil
}

// watch returns a function that keeps the index up to date.
func (j *jobs) watch(detector *rewind.Detector) func(manager.Manager) error {
	return func(mgr manager.Manager) error { return job.RunIndex(mgr, j.index, j.queue.Namespace, detector) }
}

func (j *jobs) quarantine(mgr manager.Manager) error {
	return (&quarantine.Controller{Queue: j.queue, Index: j.index, Observer: j.observer}).Register(mgr)
}

// protection returns a function that registers the protection of Nodes, or a check for protected
// Nodes if protection is off.
func (j *jobs) protection(ctx context.Context, o *options, detector *rewind.Detector) func(manager.Manager) error {
	return func(mgr manager.Manager) error {
		if !o.protecting() {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return protection.WarnOfProtected(ctx, j.nodes) }))
		}
		all, err := nodes.CacheOf(ctx, mgr.GetCache())
		if err != nil {
			return err
		}
		c := &protection.Controller{
			Nodes: j.nodes, Records: j.records, Queue: j.queue, Index: j.index, Applier: j.applier, Observer: j.observer,
			Locks: j.locks, Cache: all, Rewind: detector, Workers: o.workers,
		}
		return c.Register(mgr, metrics.Registry)
	}
}

// repeating logs the first error of a second check.
func repeating(ctx context.Context, node string, err error) {
	logf.FromContext(ctx).Error(err, "Repeating the check whether a node has returned while its record was removed", "node", node)
}

// retention returns a function that registers the removal of records. It does nothing if records
// are kept forever.
func (j *jobs) retention(o *options) func(manager.Manager) error {
	return func(mgr manager.Manager) error {
		if o.retention == 0 {
			return nil
		}
		r := &retention.Retention{
			Client: j.client, Nodes: j.nodes, Records: j.records, After: o.retention, Identity: o.Identity,
			Remover: &removal.Remover{Nodes: j.nodes, Queue: j.queue, Records: j.records, Locks: j.locks, Repeating: repeating},
		}
		return r.Register(mgr)
	}
}
