package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// Share is the share of one incarnation in a decision.
type Share struct {
	Pod, Incarnation string
	Indexes          schedule.Set
}

// Floor is a lower bound for the number of a new decision, besides the number of the last one.
type Floor struct {
	// Contracts is the highest decision and epoch in any contract for the resource; see
	// [Entry.Highest].
	Contracts int64
	// Time is the present time. Because of it, numbers also grow if the resource is deleted and
	// created again under its name, if its status is erased, or if etcd is restored from a backup.
	// So the clocks of controllers must not differ by more than such an event takes.
	Time time.Time
}

// next returns the number of the next decision.
func (f *Floor) next(decision int64) (int64, error) {
	number := max(decision, f.Contracts, f.Time.UnixMilli()) + 1
	if number <= 0 || number > placement.MaxNumber {
		return 0, fmt.Errorf("%w: the decision after %d exceeds %d", placement.ErrMalformedStatus, number-1, int64(placement.MaxNumber))
	}
	return number, nil
}

// isAbove reports whether a contract was built from a later decision.
func (f *Floor) isAbove(decision int64) bool { return f.Contracts > decision }

// indexes is a set of indexes that is cheap to change.
type indexes map[int32]bool

func (s indexes) set() schedule.Set { return slices.Sorted(maps.Keys(s)) }

// byIncarnation holds sets by incarnation.
type byIncarnation map[string]indexes

func (m byIncarnation) add(incarnation string, index int32) {
	if m[incarnation] == nil {
		m[incarnation] = indexes{}
	}
	m[incarnation][index] = true
}

// ledger is a status in a form indexed by index and incarnation.
type ledger struct {
	owner     map[int32]string
	releasing byIncarnation
	pod       map[string]string
	since     map[string]int64 // Since of the share of an incarnation
	released  map[string]int64 // Since of the release of an incarnation
	surplus   byIncarnation
}

// read returns the ledger of a status. A share without an incarnation, as another program writes
// it, does not grant anything.
func read(s *placement.Status) (*ledger, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	l := &ledger{
		owner: map[int32]string{}, releasing: byIncarnation{}, pod: map[string]string{},
		since: map[string]int64{}, released: map[string]int64{}, surplus: byIncarnation{},
	}
	for i := range s.Placement {
		p := &s.Placement[i]
		if p.Incarnation == "" {
			continue
		}
		l.pod[p.Incarnation] = p.PodName
		l.since[p.Incarnation] = max(l.since[p.Incarnation], p.Since)
		for _, index := range set(p) {
			if other, ok := l.owner[index]; ok && other != p.Incarnation {
				l.surplus.add(p.Incarnation, index)
				continue
			}
			l.owner[index] = p.Incarnation
		}
	}
	for i := range s.Releasing {
		p := &s.Releasing[i]
		if p.Incarnation == "" {
			continue
		}
		l.pod[p.Incarnation] = p.PodName
		l.released[p.Incarnation] = max(l.released[p.Incarnation], p.Since)
		for _, index := range set(p) {
			l.releasing.add(p.Incarnation, index)
		}
	}
	return l, nil
}

// write returns a status with the content of the ledger, or an error if it could not be read again.
func (l *ledger) write(s placement.Status, decision int64) (placement.Status, error) {
	s = *s.DeepCopy()
	s.Decision = decision
	owned := byIncarnation{}
	for index, incarnation := range l.owner {
		owned.add(incarnation, index)
	}
	s.Placement = l.placements(owned, l.since)
	s.Releasing = l.placements(l.releasing, l.released)
	return s, s.Check()
}

func (l *ledger) placements(sets byIncarnation, since map[string]int64) []placement.Placement {
	var shares []placement.Placement
	for incarnation, indexes := range sets {
		set := indexes.set()
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

// touch sets Since of all shares and releases to a number.
func (l *ledger) touch(number int64) {
	for incarnation := range l.pod {
		l.since[incarnation], l.released[incarnation] = number, number
	}
}

// Decide assigns the indexes of a resource to the owners in want. For each index whose owner
// changes, including to another incarnation of the same pod or to none, the former owner starts
// releasing the index unless it has ended, the new owner stops releasing it, and Since of all of
// them is set to the new number. The number is higher than now.Decision and than floor.
//
// An incarnation that has ended never becomes an owner, but it may keep the indexes that it owns
// until its pod returns or its work moves. If two shares in want contain the same index, the first
// one gets it. If nothing changes, Decide returns now and false.
//
// A contract that was built from a later decision than now shows that the status has gone back, as
// by a restore of etcd. Then Decide makes a new decision with Since of everything in any case, so
// that all contracts for the resource are written and acknowledged again.
//
// Decide returns [placement.ErrMalformedStatus] if now is malformed, or if next would be: the
// indexes that are still being released may be too many for more decisions.
func Decide(now placement.Status, want []Share, ended func(incarnation string) bool, floor Floor) (next placement.Status, changed bool, err error) {
	l, err := read(&now)
	if err != nil {
		return now, false, fmt.Errorf("deciding: %w", err)
	}
	number, err := floor.next(now.Decision)
	if err != nil {
		return now, false, fmt.Errorf("deciding: %w", err)
	}
	owner := l.owners(want, ended)
	changed = l.assign(owner, ended, number)
	if floor.isAbove(now.Decision) {
		l.touch(number)
		changed = true
	}
	if !changed {
		return now, false, nil
	}
	if next, err = l.write(now, number); err != nil {
		return now, false, fmt.Errorf("deciding: %w", err)
	}
	return next, true, nil
}

// owners returns the incarnations that become or stay the owners of indexes.
func (l *ledger) owners(want []Share, ended func(incarnation string) bool) map[int32]string {
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
	return owner
}

// assign makes the decision number with these owners, and reports whether it changes anything.
func (l *ledger) assign(owner map[int32]string, ended func(incarnation string) bool, number int64) (changed bool) {
	release := func(incarnation string, index int32) {
		changed = true
		l.since[incarnation] = number
		if !ended(incarnation) {
			l.releasing.add(incarnation, index)
			l.released[incarnation] = number
		}
	}
	for index, former := range l.owner {
		if owner[index] != former {
			release(former, index)
		}
	}
	for incarnation, set := range l.surplus {
		for index := range set {
			release(incarnation, index)
		}
	}
	for index, incarnation := range owner {
		if l.owner[index] != incarnation {
			changed = true
			l.since[incarnation] = number
		}
		if l.releasing[incarnation][index] {
			changed = true
			delete(l.releasing[incarnation], index)
			l.since[incarnation], l.released[incarnation] = number, number
		}
	}
	l.owner = owner
	return changed
}

// Release removes incarnations from Releasing that no longer work on an index: they have ended, or
// they have acknowledged an entry that was built from that decision or a later one, does not list
// the index, and is not reported as stopping it. A missing contract or entry proves nothing. As
// long as a contract was built from a later decision than now, nothing proves anything: [Decide]
// comes first then. Each change increases the decision number. If nothing changes, Release returns
// now and false. It returns [placement.ErrMalformedStatus] if now is malformed.
func Release(now placement.Status, uid types.UID, view func(incarnation string) (*View, bool), ended func(incarnation string) bool, floor Floor) (next placement.Status, changed bool, err error) {
	if len(now.Releasing) == 0 || floor.isAbove(now.Decision) {
		return now, false, nil
	}
	l, err := read(&now)
	if err != nil {
		return now, false, fmt.Errorf("releasing: %w", err)
	}
	number, err := floor.next(now.Decision)
	if err != nil {
		return now, false, fmt.Errorf("releasing: %w", err)
	}
	for incarnation, set := range l.releasing {
		hasEnded := ended(incarnation)
		v, ok := view(incarnation)
		for index := range set {
			if hasEnded || ok && v.released(uid, incarnation, l.released[incarnation], index) {
				delete(set, index)
				changed = true
			}
		}
	}
	if !changed {
		return now, false, nil
	}
	if next, err = l.write(now, number); err != nil {
		return now, false, fmt.Errorf("releasing: %w", err)
	}
	return next, true, nil
}
