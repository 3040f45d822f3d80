package main

import (
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/settings"
)

// options are the settings of a processor.
type options struct {
	service.Options

	workers     int
	restoreMode string
	liveLabels  string
	restricted  string
	retention   time.Duration
	saveDelay   time.Duration
	protect     string
}

func (o *options) addFlags(fs *flag.FlagSet) {
	o.AddFlags(fs)
	fs.IntVar(&o.workers, "workers", 12, "the `number` of nodes that are worked on at a time")
	fs.StringVar(&o.restoreMode, "restore-mode", string(labels.Replace), "`mode`: replace: a returned node's labels become the saved ones; merge: the saved ones are added")
	fs.StringVar(&o.liveLabels, "live-labels", labels.DefaultLive, "label `keys`, prefix* and *.domain/* patterns, separated by commas, whose values on the returned node win; empty for none")
	fs.StringVar(&o.restricted, "restricted-labels", string(labels.SameMachine),
		"`mode` of node-restriction.kubernetes.io/* and node-role.kubernetes.io/*: same-machine: they are put back onto the machine that they were saved from; keep: they are put back; drop: they are not")
	fs.DurationVar(&o.retention, "retention", 0, "the `duration` for which a record is kept after its node went away, 720h for instance; 0 for ever")
	fs.DurationVar(&o.saveDelay, "save-delay", settings.DefaultSaveDelay, "the `duration` for which changes of a node wait in the queue to be saved together; the end of a node waits nine times as long for its return; restores wait for nothing")
	fs.StringVar(&o.protect, "protect", settings.ProtectNone, "`mode`: none, or finalizer: a Node that is deleted stays until its last labels are saved")
}

// protecting reports whether Nodes get the finalizer.
func (o *options) protecting() bool { return o.protect == settings.ProtectFinalizer }

// policy checks the processor's own settings and returns those of restores.
func (o *options) policy() (labels.Policy, error) {
	if o.protect != settings.ProtectNone && o.protect != settings.ProtectFinalizer {
		return labels.Policy{}, fmt.Errorf("--protect: unknown value %q: use %q or %q", o.protect, settings.ProtectNone, settings.ProtectFinalizer)
	}
	if o.workers < 1 {
		return labels.Policy{}, fmt.Errorf("--workers %d: give 1 or more", o.workers)
	}
	if o.retention < 0 {
		return labels.Policy{}, fmt.Errorf("--retention %s: give a positive duration, or 0 for ever", o.retention)
	}
	if o.saveDelay < 0 {
		return labels.Policy{}, fmt.Errorf("--save-delay %s: give a positive duration, or 0 for none", o.saveDelay)
	}
	mode, err := labels.ParseMode(o.restoreMode)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--restore-mode: %w", err)
	}
	live, err := labels.ParsePatterns(o.liveLabels)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--live-labels: %w", err)
	}
	restricted, err := labels.ParseRestrictedMode(o.restricted)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--restricted-labels: %w", err)
	}
	return labels.Policy{Mode: mode, Live: live, Ignored: o.View.Ignored, Restricted: restricted}, nil
}

// cache configures the cache: records, and the Nodes if they are protected.
func (o *options) cache() cache.Options {
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{o.MetadataNamespace: {}}},
			&corev1.Node{}:      {Transform: service.StripNode(o.View)},
		},
	}
}

// The kustomize components that set a flag and grant what only that flag needs.
const (
	protectionComponent = "deploy/components/protection"
	retentionComponent  = "deploy/components/retention"
)

func (o *options) permissions() []service.Permission {
	needed := service.Permissions("", "nodes", "", "get", "patch")
	needed = append(needed, service.Permissions("", "configmaps", o.TransactionNamespace, "get", "list", "watch", "patch", "delete")...)
	needed = append(needed, service.Permissions("", "configmaps", o.MetadataNamespace, "get", "list", "watch", "create", "update")...)
	needed = append(needed, service.Permissions("coordination.k8s.io", "leases", o.TransactionNamespace, "get", "list", "create", "update", "delete")...)
	needed = append(needed, service.RingPermissions(&o.Options)...)
	if o.protecting() || o.retention > 0 {
		needed = append(needed, service.Permissions("", "nodes", "", "list")...)
	}
	if o.protecting() {
		needed = append(needed, service.GrantedBy(protectionComponent, service.Permissions("", "nodes", "", "watch"))...)
	}
	if o.retention > 0 {
		rights := append(service.Permissions("", "configmaps", o.MetadataNamespace, "patch", "delete"),
			service.Permissions("coordination.k8s.io", "leases", o.MetadataNamespace, "get", "create", "update")...)
		needed = append(needed, service.GrantedBy(retentionComponent, rights)...)
	}
	return needed
}
