package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/shardlease"
)

// Services are what a replica can be one of, and the names of their rings.
var Services = []string{"watcher", "processor"}

// Replica is a process of a service, as its place on the ring tells: its Lease.
type Replica struct {
	// Name is its identity, Service what it is one of.
	Name    string `json:"name"`
	Service string `json:"service"`
	// IsAlive says whether it renews its Lease. One that does not has died, or does not reach the
	// API server.
	IsAlive bool `json:"alive"`
}

// Lock is the lock of a node.
type Lock struct {
	Node   string `json:"node"`
	Holder string `json:"holder"`
	// IsExpired says that its holder does not renew it: the next processor takes it over.
	IsExpired bool `json:"expired"`
}

// Watched reports whether a watcher runs, as far as the places on the ring show.
func (c *Cluster) Watched(ctx context.Context) (bool, error) {
	places, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return false, err
	}
	// Watchers of before kept their Leases with the records.
	former, err := c.leases(ctx, c.MetadataNamespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	places = append(places, former...)
	return slices.ContainsFunc(replicasOf(places, time.Now()), func(r Replica) bool { return r.Service == Services[0] }), nil
}

// replicasOf returns the members of the rings, by service and name. Those that have ended, or whose
// end the others have found out, are none.
func replicasOf(leases []*coordinationv1.Lease, now time.Time) []Replica {
	var replicas []Replica
	for _, l := range leases {
		// What is dead is not told from what is orphaned: neither is a member.
		state := shardlease.StateOf(l, sinceRenewal(l, now), 0)
		if service, ok := l.Labels[ring.Label]; ok && state.Member() {
			replicas = append(replicas, Replica{Name: l.Name, Service: service, IsAlive: state == shardlease.Ready})
		}
	}
	slices.SortFunc(replicas, func(a, b Replica) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name)) })
	return replicas
}

// locksOf returns the locks of nodes, by node. Other Leases of the namespace belong to somebody
// else.
func locksOf(leases []*coordinationv1.Lease, now time.Time) []Lock {
	var locks []Lock
	for _, l := range leases {
		if nodelock.IsLock(l) {
			locks = append(locks, Lock{Node: l.Name, Holder: shardlease.Holder(l), IsExpired: isExpired(l, now)})
		}
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Node, b.Node) })
	return locks
}

func isExpired(l *coordinationv1.Lease, now time.Time) bool {
	return sinceRenewal(l, now) > shardlease.Duration(l)
}

// sinceRenewal goes by this machine's clock against the holder's: good enough to tell people, not
// to take a lock or a place. A Lease that was never renewed counts as very old.
func sinceRenewal(l *coordinationv1.Lease, now time.Time) time.Duration {
	if l.Spec.RenewTime == nil {
		return now.Sub(time.Time{})
	}
	return now.Sub(l.Spec.RenewTime.Time)
}
