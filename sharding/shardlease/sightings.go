package shardlease

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Sightings records when this process first saw each Lease with its current spec, so that the time
// without a renewal is measured by the process's own clock. The zero value is ready to use. It is
// safe for concurrent use.
type Sightings struct {
	mu     sync.Mutex
	byName map[string]sighting
}

// sighting is the spec of a Lease and when it was first seen.
type sighting struct {
	uid   types.UID
	spec  coordinationv1.LeaseSpec
	since time.Time
}

// See records that a Lease was seen at the given time, and returns when its current spec was first
// seen. Each renewal changes the spec's renewTime; a change of labels or annotations is not a
// renewal. Sightings of one Lease must be recorded in the order of its resourceVersions.
func (s *Sightings) See(l *coordinationv1.Lease, at time.Time) (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.byName[l.Name]
	if !ok || seen.uid != l.UID || !equality.Semantic.DeepEqual(seen.spec, l.Spec) {
		seen = sighting{uid: l.UID, spec: *l.Spec.DeepCopy(), since: at}
		if s.byName == nil {
			s.byName = map[string]sighting{}
		}
		s.byName[l.Name] = seen
	}
	return seen.since
}

func (s sighting) duration() time.Duration { return Duration(&coordinationv1.Lease{Spec: s.spec}) }

// Has reports whether a Lease of the given name was seen and not forgotten since.
func (s *Sightings) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byName[name]
	return ok
}

// Left returns how long the named Lease remains valid without a renewal. It returns zero if the
// Lease has expired or was never seen.
func (s *Sightings) Left(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.byName[name]
	return max(0, seen.since.Add(seen.duration()).Sub(now))
}

// Forget removes the named Lease.
func (s *Sightings) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, name)
}

// Keep forgets all Leases except the named ones.
func (s *Sightings) Keep(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byName, func(name string, _ sighting) bool { return !names[name] })
}

// truncation is the precision of the times in managedFields, which have whole seconds.
const truncation = time.Second

// LastWrite returns when a Lease was last written, or zero if it has no managedFields. The API
// server stores only the second, by its own clock. If the holder's renewTime falls in that second,
// LastWrite returns the renewTime; otherwise the clocks differ and it returns the end of the
// second. If the renewTime falls in that second by coincidence, the result is up to one second too
// early.
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

// StoredSince returns the time from which to count the age of a Lease that this process sees for
// the first time: the Lease's [LastWrite], but not later than now. A process that has just started
// thus inherits the age of the Leases that it finds.
func StoredSince(l *coordinationv1.Lease, now time.Time) time.Time {
	if last := LastWrite(l); !last.IsZero() && last.Before(now) {
		return last
	}
	return now
}
