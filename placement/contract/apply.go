package contract

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/schedule"
)

// Unit is one virtual replica.
type Unit struct {
	UID   types.UID
	Index int32
}

// Work is what a pod does for one virtual replica.
type Work struct {
	// Epoch is the one that it was started with.
	Epoch int64
	// Working means that it has said that it works.
	Working bool
	// Failure says why it does not work, if it is known.
	Failure string
}

// Accepts reports whether a pod follows a contract: only one for its own incarnation, of a higher
// generation than the last one that it followed.
func Accepts(own string, last int64, c *Contract) bool {
	return own != "" && c.Incarnation == own && c.Generation > last
}

// Adopt returns what a restarted process goes on with whose Lease is still held by its own pod: the last
// generation for [Accepts], so that it takes no contract from before the one that it has
// acknowledged, and the acknowledgement that it writes before it does anything. The first contract
// must be read live.
func Adopt(a Ack) (last int64, first Ack) {
	first = a
	first.Stopping, first.Failing = nil, map[types.UID]string{Everything: "starting"}
	return a.Generation - 1, first
}

// Apply returns what a pod must stop, which is what runs and is not listed with the same epoch, and what it
// must start, which is what is listed and does not run. If a virtual replica is listed with another epoch
// than it runs with, it is in stop only: call Apply again when it has stopped. Both are sorted.
func Apply(c *Contract, running map[Unit]Work) (stop, start []Unit) {
	for u, w := range running {
		if epoch, lists := c.Entry(u.UID).Lists(u.Index); !lists || epoch != w.Epoch {
			stop = append(stop, u)
		}
	}
	for i := range c.Entries {
		for index := range c.Entries[i].Replicas {
			u := Unit{c.Entries[i].UID, index}
			if _, runs := running[u]; !runs {
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

// Acknowledge returns the answer to a contract that a pod follows. done reports whether everything
// is as the contract wants it. A pod writes the answer when it is done, or when it has waited for
// 5 seconds, and again whenever the answer changes: what is stuck delays nothing else.
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
		if epoch, lists := c.Entry(u.UID).Lists(u.Index); lists && (!w.Working || epoch != w.Epoch) {
			fails(u.UID, w.Failure)
		}
	}
	return a, len(a.Stopping)+len(a.Failing) == 0
}
