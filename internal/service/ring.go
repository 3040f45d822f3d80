package service

import (
	"fmt"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/ring"
)

// Join makes the manager a member of a ring; cfg needs only a Group. The Leases of the members are
// in the membership namespace.
func Join(mgr manager.Manager, cfg ring.Config, o *Options) (*ring.Member, error) {
	return JoinAs(mgr, cfg, o, func(run manager.RunnableFunc) manager.Runnable { return run })
}

// JoinAs is like Join, but the manager runs the runnable that as returns for the member.
func JoinAs(mgr manager.Manager, cfg ring.Config, o *Options, as func(manager.RunnableFunc) manager.Runnable) (*ring.Member, error) {
	c, err := coordinationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	cfg.Client, cfg.Namespace, cfg.GroupLabel, cfg.Name = c, o.MembershipNamespace, ring.Label, o.Identity
	m := ring.New(cfg)
	if err := mgr.Add(as(m.Run)); err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	return m, nil
}

// RingPermissions are the permissions that a member needs.
func RingPermissions(o *Options) []daemon.Permission {
	return daemon.Permissions("coordination.k8s.io", "leases", o.MembershipNamespace, "get", "list", "watch", "create", "update", "delete")
}
