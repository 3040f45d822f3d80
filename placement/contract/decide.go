package contract

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// Share is the share of one incarnation in a decision.
type Share struct {
	Pod, Incarnation string
	Indexes          schedule.Set
}

// ledger is a status in a form indexed by index and incarnation.
type ledger struct {
	owner     map[int32]string
	releasing map[string]schedule.Set
	pod       map[string]string
	since     map[string]int64 // Since of the share of an incarnation
	released  map[string]int64 // Since of the release of an incarnation
	surplus   map[string]schedule.Set
}

func read(s *placement.Status) (*ledger, error) {
	l := &ledger{
		owner: map[int32]string{}, releasing: map[string]schedule.Set{}, pod: map[string]string{},
		since: map[string]int64{}, released: map[string]int64{}, surplus: map[string]schedule.Set{},
	}
	for i := range s.Placement {
		p := &s.Placement[i]
		set, err := p.Set()
		if err != nil {
			return nil, err
		}
		if p.Incarnation == "" { // a share written by another program does not grant anything
			continue
		}
		l.pod[p.Incarnation] = p.PodName
		l.since[p.Incarnation] = max(l.since[p.Incarnation], p.Since)
		for _, index := range set {
			if other, ok := l.owner[index]; ok && other != p.Incarnation {
				l.surplus[p.Incarnation] = l.surplus[p.Incarnation].With(index)
				continue
			}
			l.owner[index] = p.Incarnation
		}
	}
	for i := range s.Releasing {
		p := &s.Releasing[i]
		set, err := p.Set()
		if err != nil {
			return nil, err
		}
		if p.Incarnation == "" {
			continue
		}
		l.pod[p.Incarnation] = p.PodName
		l.released[p.Incarnation] = max(l.released[p.Incarnation], p.Since)
		for _, index := range set {
			l.releasing[p.Incarnation] = l.releasing[p.Incarnation].With(index)
		}
	}
	return l, nil
}

// write returns a status with the content of the ledger.
func (l *ledger) write(s placement.Status, decision int64) placement.Status {
	s = *s.DeepCopy()
	s.Decision = decision
	owned := map[string]schedule.Set{}
	for index, incarnation := range l.owner {
		owned[incarnation] = append(owned[incarnation], index)
	}
	for _, set := range owned {
		slices.Sort(set)
	}
	s.Placement = l.placements(owned, l.since)
	s.Releasing = l.placements(l.releasing, l.released)
	return s
}

func (l *ledger) placements(sets map[string]schedule.Set, since map[string]int64) []placement.Placement {
	var shares []placement.Placement
	for incarnation, set := range sets {
		if len(set) == 0 {
			continue
		}
		shares = append(shares, placement.Placement{
			PodName: l.pod[incarnation], VReplicas: int32(len(set)), //nolint:gosec // at most MaxIndexes
			Incarnation: incarnation, Indexes: set.String(), Since: since[incarnation],
		})
	}
	slices.SortFunc(shares, func(a, b placement.Placement) int {
		return cmp.Or(cmp.Compare(a.PodName, b.PodName), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return shares
}

// Decide assigns the indexes of a resource to the owners in want. For each index whose owner
// changes, including to another incarnation of the same pod or to none, the former owner starts
// releasing the index unless it has ended, the new owner stops releasing it, and Since of all of
// them is set to the new number. The number is higher than now.Decision and than floor, which must
// be the highest decision and epoch in any contract for the resource.
//
// An incarnation that has ended never becomes an owner, but it may keep the indexes that it owns
// until its pod returns or its work moves. If two shares in want contain the same index, the first
// one gets it. If nothing changes, Decide returns now and false. It returns an error if the indexes
// in now are malformed.
func Decide(now placement.Status, want []Share, ended func(incarnation string) bool, floor int64) (next placement.Status, changed bool, err error) {
	l, err := read(&now)
	if err != nil {
		return now, false, fmt.Errorf("deciding: %w", err)
	}
	number := max(now.Decision, floor) + 1
	owner := map[int32]string{}
	for _, share := range want {
		if share.Incarnation == "" {
			continue
		}
		hasEnded := ended(share.Incarnation)
		l.pod[share.Incarnation] = share.Pod
		for _, index := range share.Indexes {
			if hasEnded && l.owner[index] != share.Incarnation {
				continue
			}
			if _, ok := owner[index]; !ok {
				owner[index] = share.Incarnation
			}
		}
	}
	release := func(incarnation string, index int32) {
		changed = true
		l.since[incarnation] = number
		if !ended(incarnation) {
			l.releasing[incarnation] = l.releasing[incarnation].With(index)
			l.released[incarnation] = number
		}
	}
	for index, former := range l.owner {
		if owner[index] != former {
			release(former, index)
		}
	}
	for incarnation, set := range l.surplus {
		for _, index := range set {
			release(incarnation, index)
		}
	}
	for index, incarnation := range owner {
		if l.owner[index] != incarnation {
			changed = true
			l.since[incarnation] = number
		}
		if l.releasing[incarnation].Has(index) {
			changed = true
			l.releasing[incarnation] = l.releasing[incarnation].Without(index)
			l.since[incarnation], l.released[incarnation] = number, number
		}
	}
	if !changed {
		return now, false, nil
	}
	l.owner = owner
	return l.write(now, number), true, nil
}

// Release removes incarnations from Releasing that no longer work on an index: they have ended, or
// they have acknowledged an entry that was built from that decision or a later one, does not list
// the index, and is not reported as stopping it. A missing contract or entry proves nothing. Each
// change increases the decision number. If nothing changes, Release returns now and false. It
// returns an error if the indexes in now are malformed.
func Release(now placement.Status, uid types.UID, view func(incarnation string) (*View, bool), ended func(incarnation string) bool, floor int64) (next placement.Status, changed bool, err error) {
	if len(now.Releasing) == 0 {
		return now, false, nil
	}
	l, err := read(&now)
	if err != nil {
		return now, false, fmt.Errorf("releasing: %w", err)
	}
	for incarnation, set := range l.releasing {
		hasEnded := ended(incarnation)
		v, ok := view(incarnation)
		for _, index := range set {
			if hasEnded || ok && v.released(uid, incarnation, l.released[incarnation], index) {
				l.releasing[incarnation] = l.releasing[incarnation].Without(index)
				changed = true
			}
		}
	}
	if !changed {
		return now, false, nil
	}
	return l.write(now, max(now.Decision, floor)+1), true, nil
}
