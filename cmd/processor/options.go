package main

import (
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/service/settings"
)

// options are the settings of a processor.
type options struct {
	service.Options

	restores  service.PolicyOptions
	workers   int
	retention time.Duration
	saveDelay time.Duration
	protect   string
}

func (o *options) addFlags(fs *flag.FlagSet) {
	o.AddFlags(fs)
	fs.IntVar(&o.workers, "workers", 12, "the `number` of nodes that are worked on at a time")
	o.restores.AddFlags(fs)
	fs.DurationVar(&o.retention, "retention", 0, "the `duration` for which a record is kept after its node is gone, such as 720h; 0 keeps records forever (default 0)")
	fs.DurationVar(&o.saveDelay, "save-delay", settings.DefaultSaveDelay, "batch period: the `duration` for which changes of a node wait for more, to be saved together. The end of a node waits nine times as long for its return; restores wait for nothing")
	fs.StringVar(&o.protect, "protect", settings.ProtectNone, "`mode` of protection: \"none\" or \"finalizer\" (a Node that is deleted stays until its last labels are saved)")
}

// protecting reports whether the processor adds the finalizer to Nodes.
func (o *options) protecting() bool { return o.protect == settings.ProtectFinalizer }

// policy validates the processor's own settings and returns the policy of restores.
func (o *options) policy() (labels.Policy, error) {
	if o.protect != settings.ProtectNone && o.protect != settings.ProtectFinalizer {
		return labels.Policy{}, fmt.Errorf("--protect: unknown value %q: use %q or %q", o.protect, settings.ProtectNone, settings.ProtectFinalizer)
	}
	if o.workers < 1 {
		return labels.Policy{}, fmt.Errorf("--workers %d: give 1 or more", o.workers)
	}
	if o.retention < 0 {
		return labels.Policy{}, fmt.Errorf("--retention %s: give a positive duration, or 0 to keep records forever", o.retention)
	}
	if o.saveDelay < 0 {
		return labels.Policy{}, fmt.Errorf("--save-delay %s: give a positive duration, or 0 for none", o.saveDelay)
	}
	return o.restores.Policy(&o.Options)
}

// cache configures the cache, which holds the records and the Nodes if they are protected.
func (o *options) cache() cache.Options {
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{o.MetadataNamespace: {}}},
			&corev1.Node{}:      {Transform: service.ViewNodes(o.View)},
		},
	}
}

// The kustomize components that set a flag and grant the permissions that only this flag needs.
const (
	protectionComponent = "deploy/components/protection"
	retentionComponent  = "deploy/components/retention"
)

func (o *options) permissions() []daemon.Permission {
	needed := daemon.Permissions("", "nodes", "", "get", "list", "patch")
	needed = append(needed, daemon.Permissions("", "configmaps", o.TransactionNamespace, "get", "list", "watch", "create", "patch", "delete")...)
	needed = append(needed, daemon.Permissions("", "configmaps", o.MetadataNamespace, "get", "list", "watch", "create", "update")...)
	needed = append(needed, daemon.Permissions("coordination.k8s.io", "leases", o.TransactionNamespace, "get", "list", "create", "update", "delete")...)
	needed = append(needed, service.RingPermissions(&o.Options)...)
	if o.protecting() {
		needed = append(needed, daemon.GrantedBy(protectionComponent, daemon.Permissions("", "nodes", "", "watch"))...)
	}
	if o.retention > 0 {
		rights := append(daemon.Permissions("", "configmaps", o.MetadataNamespace, "patch", "delete"),
			daemon.Permissions("coordination.k8s.io", "leases", o.MetadataNamespace, "get", "create", "update")...)
		needed = append(needed, daemon.GrantedBy(retentionComponent, rights)...)
	}
	return needed
}
