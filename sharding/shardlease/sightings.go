package shardlease

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Sightings remembers Leases as this process has seen them, so that time without a renewal is
// measured by its own clock. The zero value has seen none. It is safe for concurrent use.
type Sightings struct {
	mu     sync.Mutex
	byName map[string]sighting
}

// sighting is a Lease since it was first seen with its spec.
type sighting struct {
	uid   types.UID
	spec  coordinationv1.LeaseSpec
	since time.Time
}

// See notes that a Lease was seen as it is at a time, and returns since when its spec has been seen so:
// each renewal changes the renewTime. Somebody else's label or annotation is no renewal. Sightings of
// one Lease must be noted in the order of its resourceVersions.
func (s *Sightings) See(l *coordinationv1.Lease, at time.Time) (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.byName[l.Name]
	if !known || seen.uid != l.UID || !equality.Semantic.DeepEqual(seen.spec, l.Spec) {
		seen = sighting{uid: l.UID, spec: *l.Spec.DeepCopy(), since: at}
		if s.byName == nil {
			s.byName = map[string]sighting{}
		}
		s.byName[l.Name] = seen
	}
	return seen.since
}

func (s sighting) duration() time.Duration { return Duration(&coordinationv1.Lease{Spec: s.spec}) }

// Has reports whether a Lease of that name was seen.
func (s *Sightings) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.byName[name]
	return known
}

// Left returns how long the Lease of that name still lasts without a renewal, or zero if it has
// expired or was never seen.
func (s *Sightings) Left(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.byName[name]
	return max(0, seen.since.Add(seen.duration()).Sub(now))
}

// Forget removes the Lease of that name.
func (s *Sightings) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

// Keep forgets all Leases but those with these names.
func (s *Sightings) Keep(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byName, func(name string, _ sighting) bool { return !names[name] })
}

// truncation is what the times in managedFields lack: they have whole seconds.
const truncation = time.Second

// LastWrite returns when a Lease was last written, or zero if the Lease does not say. The API server
// stores the whole second, by its clock. The renew time, which is the holder's, says when in that
// second; if it is of another one, the holder's clock differs, and the result is the second's end.
// If it is of the same by accident, the result is early by a second at most.
func LastWrite(l *coordinationv1.Lease) time.Time {
	var second time.Time
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.Time.After(second) {
			second = f.Time.Time
		}
	}
	if second.IsZero() {
		return second
	}
	end := second.Add(truncation)
	if r := l.Spec.RenewTime; r != nil && !r.Time.Before(second) && r.Time.Before(end) {
		return r.Time
	}
	return end
}

// StoredSince returns the time from which to count how long a Lease is unchanged if it was not seen
// before: that of its [LastWrite], and at the latest now. A process that has just started thus
// inherits the age of what it finds.
func StoredSince(l *coordinationv1.Lease, now time.Time) time.Time {
	if last := LastWrite(l); !last.IsZero() && last.Before(now) {
		return last
	}
	return now
}
