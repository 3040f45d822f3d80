package simulation

import (
	"fmt"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// never is a time before all others.
const never = -1 << 30

// noteLosses records since when the owners of shares show a sign of death, and returns the time for
// each pod, or never. A restarted leader begins to count when it starts.
func (l *leader) noteLosses() (lost [pods]int) {
	owners := map[string]bool{}
	for name := range lost {
		lost[name] = never
	}
	for name := range resources {
		r := l.resource(name)
		if r == nil || l.settings.patience == 0 {
			continue
		}
		for i := range r.status.Placement {
			owner, pod := r.status.Placement[i].Incarnation, int(r.status.Placement[i].PodName[1]-'0')
			if _, held := l.podThatHas(owner); held {
				continue
			}
			if _, known := l.losses[owner]; !known {
				l.losses[owner] = l.clock()
			}
			owners[owner], lost[pod] = true, max(lost[pod], l.losses[owner])
		}
	}
	for owner := range l.losses {
		if !owners[owner] {
			delete(l.losses, owner)
		}
	}
	return lost
}

// stateOf returns the state of a pod that is lost since the given time.
func (l *leader) stateOf(name, lost int) schedule.State {
	le, pd := l.lease(name), l.pod(name)
	isLeaving := pd != nil && pd.leaving
	isAwaited := !isLeaving && !l.mutant.impatient && l.clock()-lost < l.settings.patience
	if le != nil && l.sighting[name].rv != le.rv {
		l.sighting[name] = sighting{le.rv, l.clock()}
	}
	switch {
	case le == nil && l.mayWork(name):
		return schedule.Closed
	case (le == nil || le.holder == "") && isAwaited:
		return schedule.Closed
	case le == nil, le.holder == "":
		return schedule.Ended
	case l.clock()-l.sighting[name].at >= leaseDuration:
		return schedule.Closed
	case isLeaving:
		return schedule.Leaving
	}
	return schedule.Open
}

// mayWork reports whether an owner in a pod without a Lease has not ended.
func (l *leader) mayWork(name int) bool {
	works := false
	for other := range resources {
		r := l.resource(other)
		if r == nil {
			continue
		}
		for i := range r.status.Placement {
			share := &r.status.Placement[i]
			works = share.PodName == podName(name) && !l.hasEnded(name, share.Incarnation) || works
		}
	}
	return works
}

// movesTooEarly returns what a decision moves away from a pod that has a Lease, or whose
// incarnation ended so shortly ago that the pod may still return within the patience; or an empty
// text. The leader must have seen the present Lease, and may have the fastest clock.
func (l *leader) movesTooEarly(r *resource, next *placement.Status, now schedule.Assignment) string {
	for i := range r.status.Placement {
		share := &r.status.Placement[i]
		name, load := int(share.PodName[1]-'0'), int32(0)
		for _, numbers := range now {
			load += numbers[share.PodName]
		}
		le, pd := l.lease(name), l.pod(name)
		if l.settings.patience == 0 || pd == nil || pd.leaving || load > l.settings.capacity || le != l.world.lease(name) {
			continue
		}
		renewed, known := l.world.ghost.renewed[share.Incarnation]
		isLost := le == nil || le.holder == ""
		if isLost && (!known || l.world.now-renewed >= l.settings.patience*10/13) {
			continue
		}
		set, _ := share.Set()
		for _, index := range set.Below(r.wanted) {
			if owner := ownerPod(next, index); owner != share.PodName {
				return fmt.Sprintf("moves %s[%d] from %s to %s", r.uid, index, share.PodName, owner)
			}
		}
	}
	return ""
}
