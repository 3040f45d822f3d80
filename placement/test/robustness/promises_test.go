package robustness

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/test/journal"
)

var (
	errBrokeW1    = errors.New("W1: no two pods work on one virtual replica, and epochs grow with every new owner")
	errBrokeReady = errors.New("R23: Ready is not True for work that nothing does")
	errBrokeW2    = errors.New("W2: when all is calm, every desired virtual replica is worked on")
	errBrokeW5    = errors.New("W5: a calm pool writes nothing but renewals")
)

const (
	// readyLimit is how long Ready may be True for work that nothing does: a Lease counts as renewed
	// for its duration, and the condition then stays as it is for a moment. The rest is for a pass and
	// for a busy machine.
	readyLimit = leaseDuration + ready.Grace + 3*time.Second
	// recovery is how long a fault of a controller or a server may be felt after its end: until another
	// controller is the leader, or a watch is tried again.
	recovery = 30 * time.Second

	forever = int64(math.MaxInt64)
)

// interval is a time from one moment to before another, by the clock of the journal.
type interval struct{ from, to int64 }

// readyTimes returns when a Queue was Ready for a number of virtual replicas.
func readyTimes(all []sighting) map[string][]claim {
	type version struct {
		uid        string
		generation int64
	}
	wanted := map[version]int32{}
	claims := map[string][]claim{}
	for _, s := range all {
		wanted[version{s.uid, s.generation}] = s.wanted
		list := claims[s.name]
		if n := len(list); n > 0 && list[n-1].to == forever {
			list[n-1].to = s.at
		}
		n, known := wanted[version{s.uid, s.readyFor}]
		if s.isReady && !s.isGone && known {
			if last := len(list) - 1; last >= 0 && list[last].to == s.at && list[last].wanted == n && list[last].uid == s.uid {
				list[last].to = forever // it continues
			} else {
				list = append(list, claim{interval{s.at, forever}, n, s.uid})
			}
		}
		claims[s.name] = list
	}
	return claims
}

// claim is a time in which a Queue was Ready.
type claim struct {
	interval

	wanted int32
	uid    string
}

// checkReady checks that Ready was never True for longer than the limit while nothing worked on a
// virtual replica. Times that are excused do not count.
func checkReady(spells []*spell, sightings []sighting, excused []interval, end int64) error {
	work := map[string][]interval{}
	for _, s := range spells {
		work[key(s.Entry)] = append(work[key(s.Entry)], interval{s.NS, s.end})
	}
	for name, claims := range readyTimes(sightings) {
		for _, c := range claims {
			for index := range c.wanted {
				at := key(journal.Entry{UID: c.uid, Index: index})
				known := append(slices.Clone(work[at]), excused...)
				if gap := longestGap(interval{c.from, min(c.to, end)}, known); time.Duration(gap.to-gap.from) > readyLimit {
					return fmt.Errorf("%w: %s was Ready at %.3f, and nothing worked on index %d from %.3f for %s",
						errBrokeReady, name, float64(c.from)/1e9, index, float64(gap.from)/1e9, time.Duration(gap.to-gap.from))
				}
			}
		}
	}
	return nil
}

// longestGap returns the longest part of a time that no other time covers.
func longestGap(of interval, covered []interval) (longest interval) {
	slices.SortFunc(covered, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	at := of.from
	note := func(to int64) {
		if to = min(to, of.to); to-at > longest.to-longest.from {
			longest = interval{at, to}
		}
	}
	for _, c := range covered {
		note(c.from)
		at = max(at, c.to)
	}
	note(of.to)
	return longest
}

// excused returns the times in which conditions may be wrong, because a controller or a server had a
// fault.
func excused(troubled []interval) (all []interval) {
	for _, t := range troubled {
		if t.to != forever {
			t.to += int64(recovery)
		}
		all = append(all, t)
	}
	return all
}
