package service

import (
	"fmt"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/ring"
)

// Join makes the manager a member of the program's ring. The Leases of the members are in the metadata namespace: in that of the
// transactions, Leases are the locks of nodes. It returns nil if the options want no ring.
func Join(mgr manager.Manager, program string, o *Options) (ring.Placed, error) {
	if !o.Ring {
		return nil, nil //nolint:nilnil // to be no member is a choice, not an error
	}
	c, err := coordinationv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	m := ring.New(ring.Config{Client: c, Namespace: o.MetadataNamespace, Ring: program, Identity: o.Identity})
	if err := mgr.Add(manager.RunnableFunc(m.Run)); err != nil {
		return nil, fmt.Errorf("joining the ring: %w", err)
	}
	return m, nil
}

// RingPermissions are what a member needs.
func RingPermissions(o *Options) []Permission {
	return Permissions("coordination.k8s.io", "leases", o.MetadataNamespace, "get", "list", "watch", "create", "update", "delete")
}
