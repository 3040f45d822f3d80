package inspect

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"nodekeeper.dev/internal/ring/hashring"
	"nodekeeper.dev/internal/service/settings"
)

// Servers are the replicas of the services, to ask what they run with and who works on a node. It is
// immutable. The zero value knows of none.
type Servers struct {
	places []place
	ring   *hashring.Ring // of the processors that are ready
}

// Servers reads the places on the rings.
func (c *Cluster) Servers(ctx context.Context) (*Servers, error) {
	leases, err := c.leases(ctx, c.MembershipNamespace)
	if err != nil {
		return nil, err
	}
	return ServersOf(leases, c.Now()), nil
}

// ServersOf is [Cluster.Servers] of Leases that were read.
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

// of returns the places of a service, also those of replicas that have ended.
func (s *Servers) of(service string) []place {
	return slices.DeleteFunc(slices.Clone(s.places), func(p place) bool { return p.Service != service })
}

// Owner returns the processor that comes first for a node on the ring, "" if none is ready. All
// others leave the node to it for a few seconds.
func (s *Servers) Owner(node string) string {
	if s.ring == nil {
		return ""
	}
	return s.ring.Owner(node)
}

// Chosen is a replica whose settings stand for those of its service.
type Chosen struct {
	// Name is that of the replica, "" if none of the service says what it runs with. Settings are
	// its.
	Name     string
	Settings settings.Settings
	// Ended reports that no replica of the service is alive: this one was the last.
	Ended bool
	// Differing are the settings that the replicas of the service which are alive have in different
	// values.
	Differing []string
	// Unreadable are the replicas that are alive and whose settings cannot be read.
	Unreadable []Replica
}

// Processor returns the processor whose settings a forecast of a node goes by: the owner, which will
// most likely decide; if that says nothing, another one that is alive; and if none is, the last one.
func (s *Servers) Processor(node string) Chosen { return s.choose(ProcessorService, s.Owner(node)) }

// Watcher returns the watcher whose settings stand for what is recorded: the first that is alive, or
// the last one if none is.
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
	if best.Settings == nil || alive && !best.IsAlive { // those that are alive may be of another release
		return c
	}
	c.Name, c.Settings, c.Ended = best.Name, best.Settings, !alive
	c.Differing = Differing(membersOf(s.of(service)))
	return c
}

// isBetter reports whether a replica is a better choice than the one before it by name.
func isBetter(r, before place, preferred string) bool {
	switch {
	case r.IsAlive != before.IsAlive:
		return r.IsAlive
	case r.IsAlive:
		return r.Name == preferred
	}
	return r.renewed.After(before.renewed)
}

// Differing returns the settings that replicas which are alive have in different values: those of one
// service, and those that all services have.
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

// WebhooksDiffer returns the settings that some webhook and some processor, both alive, share and
// have in different values, sorted. While there are any, that webhook puts nothing back.
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
