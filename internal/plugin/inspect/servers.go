package inspect

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"nodekeeper.dev/internal/ring/hashring"
	"nodekeeper.dev/internal/service/settings"
)

// Servers are the replicas of the services, with their settings. It is immutable. The zero value
// has no replicas.
type Servers struct {
	places []place
	ring   *hashring.Ring // of the ready processors
}

// Servers reads the replicas.
func (c *Cluster) Servers(ctx context.Context) (*Servers, error) {
	leases, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return nil, err
	}
	return ServersOf(leases, c.Now()), nil
}

// ServersOf is [Cluster.Servers] for Leases that are already read.
func ServersOf(leases []*coordinationv1.Lease, now time.Time) *Servers {
	return newServers(placesOf(leases, now))
}

func newServers(places []place) *Servers {
	s := &Servers{places: places}
	var ready []string
	for _, r := range s.of(ProcessorService) {
		if r.IsAlive && !r.IsStandby {
			ready = append(ready, r.Name)
		}
	}
	s.ring = hashring.New(ready...)
	return s
}

// of returns the places of a service, including replicas that have ended.
func (s *Servers) of(service string) []place {
	return slices.DeleteFunc(slices.Clone(s.places), func(p place) bool { return p.Service != service })
}

// Owner returns the processor that owns a node on the ring, or "" if none is ready. The others
// leave the node to it for a few seconds.
func (s *Servers) Owner(node string) string {
	if s.ring == nil {
		return ""
	}
	return s.ring.Owner(node)
}

// Chosen is a replica whose settings represent its service.
type Chosen struct {
	// Name is the name of the replica, and Settings are its settings. Name is empty if no replica
	// of the service publishes its settings.
	Name     string
	Settings settings.Settings
	// Ended reports whether no replica of the service is alive. This one then was the last.
	Ended bool
	// Differing are the settings whose values differ among the live replicas of the service.
	Differing []string
	// Unreadable are the live replicas whose settings cannot be parsed.
	Unreadable []Replica
}

// Processor returns the processor whose settings the forecast of a node uses: the owner, which most
// likely decides; else another live processor with settings; and if none is alive, the last one.
func (s *Servers) Processor(node string) Chosen { return s.choose(ProcessorService, s.Owner(node)) }

// Watcher returns the watcher that represents all watchers: the first live one, or the last one if
// none is alive.
func (s *Servers) Watcher() Chosen { return s.choose(WatcherService, "") }

func (s *Servers) choose(service, preferred string) Chosen {
	var c Chosen
	var best place
	alive := false
	for _, r := range s.of(service) {
		if r.IsAlive && r.SettingsProblem != "" {
			c.Unreadable = append(c.Unreadable, r.Replica)
		}
		alive = alive || r.IsAlive
		if r.Settings != nil && (best.Settings == nil || isBetter(r, best, preferred)) {
			best = r
		}
	}
	if best.Settings == nil || alive && !best.IsAlive { // the live replicas may be of another release
		return c
	}
	c.Name, c.Settings, c.Ended = best.Name, best.Settings, !alive
	c.Differing = Differing(membersOf(s.of(service)))
	return c
}

// isBetter reports whether a replica is a better choice than a preceding one.
func isBetter(r, before place, preferred string) bool {
	switch {
	case r.IsAlive != before.IsAlive:
		return r.IsAlive
	case r.IsAlive:
		return r.Name == preferred
	}
	return r.renewed.After(before.renewed)
}

// Differing returns the settings whose values differ among live replicas, which may be of different
// services.
func Differing(replicas []Replica) []string {
	first, differs := settings.Settings{}, settings.Settings{}
	for _, r := range replicas {
		if !r.IsAlive {
			continue
		}
		for name, value := range r.Settings {
			if before, ok := first[name]; ok && before != value {
				differs[name] = ""
			}
			first[name] = value
		}
	}
	return differs.Names()
}

// WebhooksDiffer returns the sorted settings whose values differ between a live webhook and a live
// processor. While there are any, the webhook restores nothing.
func WebhooksDiffer(replicas []Replica) []string {
	var names []string
	for _, w := range replicas {
		for _, p := range replicas {
			if w.IsAlive && w.Service == WebhookService && p.IsAlive && p.Service == ProcessorService {
				names = append(names, w.Settings.Differing(p.Settings)...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
