package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Services are the services that nodekeeper requires. The webhook is optional.
var Services = []string{WatcherService, ProcessorService}

// WebhookConfiguration is the name of the MutatingWebhookConfiguration of the webhooks: the default
// of their flag --webhook-configuration.
const WebhookConfiguration = "nodekeeper"

// Replica is a process of a service, as described by its Lease.
type Replica struct {
	// Name is its identity.
	Name    string `json:"name"`
	Service string `json:"service"`
	// IsAlive reports whether it renews its Lease. Otherwise it has died, or cannot reach the API
	// server.
	IsAlive bool `json:"alive"`
	// IsStandby reports whether its Lease marks it as not serving: a watcher that still compares
	// the nodes with their records, or a webhook that is not ready.
	IsStandby bool `json:"standby,omitempty"`
	// Heard is when it last renewed its Lease, by its own clock. Silence is how long ago that was if
	// a renewal is overdue, and otherwise zero. A replica that was killed is silent before it counts
	// as dead.
	Heard   *metav1.Time  `json:"heard,omitempty"`
	Silence time.Duration `json:"-"`
	// LateBy is how late a processor has just applied transactions, see [settings.Late]. It is nil if
	// it has not applied any late in the last half minute.
	LateBy *metav1.Duration `json:"lateBy,omitempty"`
	// Version is the version of its build, or empty if it does not publish a valid one.
	Version string `json:"version,omitempty"`
	// Settings are its published settings, or nil. SettingsProblem is their parse error.
	Settings        settings.Settings `json:"settings,omitempty"`
	SettingsProblem string            `json:"settingsProblem,omitempty"`
}

// Ready reports whether the replica is alive and, if it is a webhook, serves.
func (r Replica) Ready() bool {
	return r.IsAlive && (r.Service != WebhookService || !r.IsStandby)
}

// Silent reports whether the replica counts as alive, but has not renewed its Lease in time.
func (r Replica) Silent() bool { return r.IsAlive && r.Silence > 0 }

// place is the place of a replica on a ring.
type place struct {
	Replica

	// ended reports whether the replica is gone and only its Lease is left.
	ended   bool
	renewed time.Time
}

// caughtUpAfter is how long a processor counts as catching up after it has applied a late
// transaction.
const caughtUpAfter = 30 * time.Second

// maxProblemBytes bounds an error that quotes text from a Lease.
const maxProblemBytes = 200

// Lock is the lock of a node.
type Lock struct {
	Node   string `json:"node"`
	Holder string `json:"holder"`
	// IsExpired reports whether the holder does not renew it, so that the next processor takes it
	// over.
	IsExpired bool `json:"expired"`
}

// Watched reports whether a watcher runs. This is certain only if the membership namespace has
// Leases of replicas, even of one replica that ended within the last minute: otherwise the replicas
// may use another namespace. Replicas of earlier releases kept their Leases with the records; Leases
// there that have expired do not count, as no program removes them.
func (c *Cluster) Watched(ctx context.Context) (watched, certain bool, err error) {
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

// Replicas returns the members of the rings, sorted by service and name.
func (c *Cluster) Replicas(ctx context.Context) ([]Replica, error) {
	leases, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return nil, err
	}
	return ReplicasOf(leases, c.Now()), nil
}

// ReplicasOf is [Cluster.Replicas] for Leases that are already read.
func ReplicasOf(leases []*coordinationv1.Lease, now time.Time) []Replica {
	return membersOf(placesOf(leases, now))
}

// membersOf returns the replicas that have not ended.
func membersOf(places []place) []Replica {
	var replicas []Replica
	for _, p := range places {
		if !p.ended {
			replicas = append(replicas, p.Replica)
		}
	}
	return replicas
}

// placesOf returns all places on the rings, sorted by service and name, including replicas that
// have ended.
func placesOf(leases []*coordinationv1.Lease, now time.Time) []place {
	var places []place
	for _, l := range leases {
		service, ok := l.Labels[ring.Label]
		if !ok {
			continue
		}
		// Dead and orphaned Leases are treated alike: neither is a member.
		state := shardlease.StateOf(l, sinceRenewal(l, now), 0)
		p := place{
			Replica: Replica{Name: l.Name, Service: service, IsAlive: state == shardlease.Ready, Version: settings.Version(l.Annotations)},
			ended:   !state.Member(),
		}
		p.IsStandby = l.Annotations[ring.StandbyKey(ring.Label)] == "true"
		if l.Spec.RenewTime != nil {
			p.renewed = l.Spec.RenewTime.Time
			p.Heard = timeOf(p.renewed)
			p.Silence = silence(l, now)
			if p.IsAlive && service == ProcessorService {
				p.LateBy = lateBy(l, now)
			}
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

// silence returns how long ago a Lease was renewed, if a renewal is overdue.
func silence(l *coordinationv1.Lease, now time.Time) time.Duration {
	const tolerance = 5 * time.Second // of requests, and of clocks
	since := sinceRenewal(l, now)
	if since <= shardlease.RenewPeriod(shardlease.Duration(l))+tolerance {
		return 0
	}
	return since
}

// lateBy compares times of the processor, whose clock may have been set back since. If its clock is
// far ahead of the caller's, it cannot be known whether the processor still runs.
func lateBy(l *coordinationv1.Lease, now time.Time) *metav1.Duration {
	late, ok := settings.ParseLate(l.Annotations[settings.LateAnnotation])
	before, since := l.Spec.RenewTime.Sub(late.At), sinceRenewal(l, now) // a renewal stores it
	if !ok || before < -time.Second || since < -caughtUpAfter || before+max(0, since) > caughtUpAfter {
		return nil
	}
	return &metav1.Duration{Duration: late.By}
}

// locksOf returns the locks of nodes, sorted by node. It ignores Leases of other owners.
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

// sinceRenewal compares the clock of the caller with that of the holder, which suffices for display
// but not for taking over a Lease. A Lease that was never renewed counts as very old.
func sinceRenewal(l *coordinationv1.Lease, now time.Time) time.Duration {
	if l.Spec.RenewTime == nil {
		return now.Sub(time.Time{})
	}
	return now.Sub(l.Spec.RenewTime.Time)
}
