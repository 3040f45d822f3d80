package service

import (
	"fmt"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/shardlease"
)

// Join makes the manager a member of the program's ring. The Leases of the members are in the
// metadata namespace: in that of the transactions, Leases are the locks of nodes.
func Join(mgr manager.Manager, program string, o *Options) (*shardlease.Member, error) {
	c, err := coordinationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	m := shardlease.New(shardlease.Config{
		Client: c, Namespace: o.MetadataNamespace, GroupLabel: ring.Label, Group: program, Name: o.Identity,
	})
	if err := mgr.Add(manager.RunnableFunc(m.Run)); err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	return m, nil
}

// RingPermissions are what a member needs.
func RingPermissions(o *Options) []Permission {
	return Permissions("coordination.k8s.io", "leases", o.MetadataNamespace, "get", "list", "watch", "create", "update", "delete")
}
