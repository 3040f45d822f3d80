package nodelock

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sightings are the locks of other processes, as this one has seen them. Only time that passes here, on this clock, without a renewal
// shows that a holder is gone. They may be behind: a lock is taken over only after a read that finds it still as it was
// seen. They are safe for concurrent use.
type sightings struct {
	mu     sync.Mutex
	byNode map[string]sighting
}

// sighting is a Lease since it was first seen as it is.
type sighting struct {
	uid             types.UID
	resourceVersion string
	since           time.Time
	duration        time.Duration
}

func newSightings() *sightings { return &sightings{byNode: map[string]sighting{}} }

// see notes the Lease of another process and returns how much longer it is that one's, if it is not renewed.
func (s *sightings) see(l *coordinationv1.Lease) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.byNode[l.Name]
	if seen.uid != l.UID || seen.resourceVersion != l.ResourceVersion {
		seen = sighting{uid: l.UID, resourceVersion: l.ResourceVersion, since: time.Now()}
		if seconds := l.Spec.LeaseDurationSeconds; seconds != nil {
			seen.duration = time.Duration(*seconds) * time.Second
		}
		s.byNode[l.Name] = seen
	}
	return seen.left()
}

func (s *sightings) has(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isSeen := s.byNode[node]
	return isSeen
}

// left returns how much longer the lock of a node is another's as far as is known.
func (s *sightings) left(node string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNode[node].left()
}

func (s sighting) left() time.Duration { return max(0, time.Until(s.since.Add(s.duration))) }

func (s *sightings) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNode, node)
}

// keepOnly forgets the locks that are gone.
func (s *sightings) keepOnly(isThere map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byNode, func(node string, _ sighting) bool { return !isThere[node] })
}
