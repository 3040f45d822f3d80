package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/sharding/shardlease"
)

// The services, by the names of their rings.
const (
	WatcherService   = "watcher"
	ProcessorService = "processor"
	WebhookService   = "webhook"
)

// Services are those that nodekeeper does not work without. The webhook is optional.
var Services = []string{WatcherService, ProcessorService}

// WebhookConfiguration is the name of the MutatingWebhookConfiguration by which the API server asks
// the webhooks: the default of their flag --webhook-configuration.
const WebhookConfiguration = "nodekeeper"

// Replica is a process of a service, as its place on the ring tells: its Lease.
type Replica struct {
	// Name is its identity, Service what it is one of.
	Name    string `json:"name"`
	Service string `json:"service"`
	// IsAlive says whether it renews its Lease. One that does not has died, or does not reach the
	// API server.
	IsAlive bool `json:"alive"`
	// IsStandby says whether its Lease says that it does not serve: a watcher that still compares the
	// nodes with their records, or a webhook that is not ready.
	IsStandby bool `json:"standby,omitempty"`
	// Version is that of its build, "" if it does not say one that can be read.
	Version string `json:"version,omitempty"`
	// Settings are what it runs with, nil if it does not say; SettingsProblem says why they cannot
	// be read.
	Settings        settings.Settings `json:"settings,omitempty"`
	SettingsProblem string            `json:"settingsProblem,omitempty"`
}

// Ready reports whether the replica is alive and, if it is a webhook, serves.
func (r Replica) Ready() bool {
	return r.IsAlive && (r.Service != WebhookService || !r.IsStandby)
}

// place is that of a replica on a ring.
type place struct {
	Replica

	// ended reports whether it is gone, and only its Lease is left.
	ended   bool
	renewed time.Time
}

// maxProblemBytes bounds what is kept of an error that repeats what somebody else has written.
const maxProblemBytes = 200

// Lock is the lock of a node.
type Lock struct {
	Node   string `json:"node"`
	Holder string `json:"holder"`
	// IsExpired says that its holder does not renew it: the next processor takes it over.
	IsExpired bool `json:"expired"`
}

// Watched reports whether a watcher runs, as far as the places on the ring show. It is not known if
// nobody has a place there, not even one that has ended a minute ago: the replicas may have theirs in
// another namespace. Those of a former release, which kept theirs with the records, have left them
// there for ever.
func (c *Cluster) Watched(ctx context.Context) (watched, known bool, err error) {
	leases, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return false, false, err
	}
	former, err := c.leases(ctx, c.MetadataNamespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, false, err
	}
	now := c.Now()
	places := placesOf(leases, now)
	for _, p := range placesOf(former, now) {
		if !p.ended {
			places = append(places, p)
		}
	}
	watched = slices.ContainsFunc(places, func(p place) bool { return p.Service == WatcherService && !p.ended })
	return watched, len(places) > 0, nil
}

// Replicas returns the members of the rings, by service and name.
func (c *Cluster) Replicas(ctx context.Context) ([]Replica, error) {
	leases, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return nil, err
	}
	return ReplicasOf(leases, c.Now()), nil
}

// ReplicasOf returns the members of the rings in Leases that were read, by service and name.
func ReplicasOf(leases []*coordinationv1.Lease, now time.Time) []Replica {
	return membersOf(placesOf(leases, now))
}

// membersOf returns the replicas without those that have ended, or whose end the others have found
// out.
func membersOf(places []place) []Replica {
	var replicas []Replica
	for _, p := range places {
		if !p.ended {
			replicas = append(replicas, p.Replica)
		}
	}
	return replicas
}

// placesOf returns all places on the rings, by service and name, also those of replicas that have
// ended and whose Lease is left.
func placesOf(leases []*coordinationv1.Lease, now time.Time) []place {
	var places []place
	for _, l := range leases {
		service, ok := l.Labels[ring.Label]
		if !ok {
			continue
		}
		// What is dead is not told from what is orphaned: neither is a member.
		state := shardlease.StateOf(l, sinceRenewal(l, now), 0)
		p := place{
			Replica: Replica{Name: l.Name, Service: service, IsAlive: state == shardlease.Ready, Version: settings.Version(l.Annotations)},
			ended:   !state.Member(),
		}
		p.IsStandby = l.Annotations[ring.StandbyKey(ring.Label)] == "true"
		if l.Spec.RenewTime != nil {
			p.renewed = l.Spec.RenewTime.Time
		}
		var err error
		if p.Settings, err = settings.Parse(l.Annotations); err != nil {
			p.SettingsProblem = strings.ToValidUTF8(err.Error()[:min(len(err.Error()), maxProblemBytes)], "")
		}
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name)) })
	return places
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
