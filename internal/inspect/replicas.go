package inspect

import (
	"cmp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// ringLabel is the label of a replica's Lease that says which service it is of. The locks of nodes have none.
const ringLabel = "nodekeeper.dev/ring"

// Replica is a process of a service, as its Lease tells.
type Replica struct {
	// Name is its identity, Service what it is one of: watcher or processor.
	Name    string `json:"name"`
	Service string `json:"service"`
	// IsAlive says whether it holds its Lease.
	IsAlive bool `json:"alive"`
}

// Lock is the lock of a node.
type Lock struct {
	Node   string `json:"node"`
	Holder string `json:"holder"`
	// IsExpired says that its holder does not renew it: the next processor takes it over.
	IsExpired bool `json:"expired"`
}

// replicasOf returns the replicas that have a Lease, by service and name.
func replicasOf(leases []*coordinationv1.Lease, now time.Time) []Replica {
	var replicas []Replica
	for _, l := range leases {
		if service, ok := l.Labels[ringLabel]; ok {
			replicas = append(replicas, Replica{Name: l.Name, Service: service, IsAlive: holder(l) == l.Name && !isExpired(l, now)})
		}
	}
	slices.SortFunc(replicas, func(a, b Replica) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name)) })
	return replicas
}

// locksOf returns the locks of nodes, by node.
func locksOf(leases []*coordinationv1.Lease, now time.Time) []Lock {
	var locks []Lock
	for _, l := range leases {
		if _, isReplica := l.Labels[ringLabel]; !isReplica {
			locks = append(locks, Lock{Node: l.Name, Holder: holder(l), IsExpired: isExpired(l, now)})
		}
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Node, b.Node) })
	return locks
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// isExpired goes by this machine's clock against the holder's: good enough to tell people, not to take a lock.
func isExpired(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second).Before(now)
}
