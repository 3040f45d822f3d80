package main

import (
	"fmt"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
	"nodekeeper.dev/sharding/internal/ring"
)

// compatMode selects another project whose shards are also supported.
type compatMode string

const (
	compatNone      compatMode = "none"
	compatTimebertt compatMode = "timebertt"
)

func (m compatMode) validate() error {
	if m != compatNone && m != compatTimebertt {
		return fmt.Errorf("--compat=%s: must be none or timebertt", string(m))
	}
	return nil
}

// dialect returns the kinds of rings that are supported and the keys that they use.
func (o *options) dialect() ring.Dialect {
	return ring.Dialect{Prefix: o.labelPrefix, Compat: o.compat == compatTimebertt}
}

// compatPermissions returns the additional permissions for --compat: the shards can be in any
// namespace.
func (o *options) compatPermissions() (needed []daemon.Permission) {
	if o.compat == compatNone {
		return nil
	}
	needed = daemon.Permissions(compat.Kind.Group, "controllerrings", "", "get", "list", "watch")
	needed = append(needed, daemon.Permissions(compat.Kind.Group, "controllerrings/status", "", "patch")...)
	needed = append(needed, daemon.Permissions(v1alpha1.GroupName, "clusterrings", "", "create", "delete")...)
	return append(needed, daemon.Permissions("coordination.k8s.io", "leases", "", "list", "watch", "update", "patch", "delete")...)
}

// registerMirrors adds the controller that mirrors ControllerRings to the manager if --compat is
// set.
func registerMirrors(mgr manager.Manager, o *options, recorder events.EventRecorder) error {
	if o.compat == compatNone {
		return nil
	}
	mirrors := &compat.Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: recorder, SyncPeriod: o.syncPeriod}
	return mirrors.Register(mgr) //nolint:wrapcheck // the error needs no context
}
