package contract

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/schedule"
)

// Unit identifies one virtual replica.
type Unit struct {
	UID   types.UID
	Index int32
}

// Work is the state of a pod's work on one virtual replica.
type Work struct {
	// Epoch is the epoch with which the work was started.
	Epoch int64
	// Working is set once the worker has reported that it works.
	Working bool
	// Failure is the reason why it does not work, if known.
	Failure string
}

// Accepts reports whether a pod must follow a contract. A pod follows only contracts for its own
// incarnation with a higher generation than the last one that it followed.
func Accepts(own string, last int64, c *Contract) bool {
	return own != "" && c.Incarnation == own && c.Generation > last
}

// Adopt returns the state with which a restarted process continues if its own pod still holds the
// Lease: the last generation for [Accepts], so that the process follows no contract older than the
// one it has acknowledged, and the acknowledgement to write before doing anything else. The process
// must read its first contract from the API server, not from a cache.
func Adopt(a Ack) (last int64, first Ack) {
	first = a
	first.Stopping, first.Failing = nil, map[types.UID]string{Everything: "starting"}
	return a.Generation - 1, first
}

// Apply returns the units that a pod must stop and start. It must stop the units that run but are
// not listed with the same epoch, and start the units that are listed but do not run. A unit that
// is listed with another epoch than it runs with is only in stop; call Apply again when it has
// stopped. Both results are sorted.
func Apply(c *Contract, running map[Unit]Work) (stop, start []Unit) {
	for u, w := range running {
		if epoch, listed := c.Entry(u.UID).Lists(u.Index); !listed || epoch != w.Epoch {
			stop = append(stop, u)
		}
	}
	for i := range c.Entries {
		for index := range c.Entries[i].Replicas {
			u := Unit{c.Entries[i].UID, index}
			if _, ok := running[u]; !ok {
				start = append(start, u)
			}
		}
	}
	slices.SortFunc(stop, compareUnits)
	slices.SortFunc(start, compareUnits)
	return stop, start
}

func compareUnits(a, b Unit) int {
	return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Index, b.Index))
}

// Acknowledge returns a pod's acknowledgement of a contract that it follows, and reports whether
// everything is as the contract requires. A pod writes the acknowledgement when done is true or
// after waiting for 5 seconds, and again whenever it changes, so that a stuck unit does not delay
// others.
func Acknowledge(c *Contract, digest string, running map[Unit]Work) (a Ack, done bool) {
	a = Ack{Incarnation: c.Incarnation, Generation: c.Generation, Digest: digest}
	stop, start := Apply(c, running)
	for _, u := range stop {
		if a.Stopping == nil {
			a.Stopping = map[types.UID]schedule.Set{}
		}
		a.Stopping[u.UID] = append(a.Stopping[u.UID], u.Index)
	}
	fails := func(uid types.UID, why string) {
		if a.Failing == nil {
			a.Failing = map[types.UID]string{}
		}
		a.Failing[uid] = max(a.Failing[uid], cmp.Or(why, "starting"))
	}
	for _, u := range start {
		fails(u.UID, "")
	}
	for u, w := range running {
		if epoch, listed := c.Entry(u.UID).Lists(u.Index); listed && (!w.Working || epoch != w.Epoch) {
			fails(u.UID, w.Failure)
		}
	}
	return a, len(a.Stopping)+len(a.Failing) == 0
}
