package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
)

const (
	// detailPeriod is the least time from a write of a status to one of its numbers and messages
	// alone, and from a write of contracts: the pods acknowledge them soon, one after the other, and
	// the verdict follows. While contracts are written all the time, it is maxDetailDelay.
	detailPeriod, maxDetailDelay = time.Second, 10 * time.Second
	// verdictPeriod is the least time between two writes of one verdict that another writer undoes.
	// Otherwise the two would write to one status as fast as they can.
	verdictPeriod = 10 * time.Second
)

// change is a status to write.
type change struct {
	version *version[*resource]
	status  placement.Status
}

// isUsable reports whether decisions about a resource are possible.
func (r *resource) isUsable() bool { return r.malformed == nil && !r.kind.pruned }

// decide returns the statuses that must be written.
func (p *pass) decide(ctx context.Context) []change {
	items, now := p.items()
	p.reserve()
	policy := p.policy()
	next, pending := schedule.Schedule(policy, p.pods, items, now)
	if p.isCalm(pending) {
		var moves []schedule.Move
		next, moves = schedule.Rebalance(policy, p.pods, items, next, int(p.Rebalance))
		p.rebalanced = map[origin]bool{}
		for _, m := range moves {
			p.rebalanced[origin{m.Item, m.From}] = true
		}
	}
	held := map[types.UID]map[string]schedule.Set{}
	for _, v := range p.resources {
		if v.parsed.isUsable() && p.isTooLarge(v.parsed) {
			next[string(v.uid)], held[v.uid] = p.held(v)
		}
	}
	var changes []change
	for _, v := range p.resources {
		r := v.parsed
		if !r.isUsable() {
			continue
		}
		status, err := p.decideOne(r, held[v.uid], next[string(v.uid)])
		if err != nil {
			if p.mayTry("decide "+string(v.uid), v.resourceVersion) {
				p.failed(ctx, "decide "+string(v.uid), v.resourceVersion, err, "Deciding failed", "resource", r.ref())
			}
			continue
		}
		if p.report(v, &status) && p.mayTry("status "+string(v.uid), v.resourceVersion) {
			changes = append(changes, change{v, status})
		}
	}
	return changes
}

// items returns the input for scheduling.
func (p *pass) items() (items []schedule.Item, now schedule.Assignment) {
	now = make(schedule.Assignment, len(p.resources))
	for _, v := range p.resources {
		r := v.parsed
		if !r.isUsable() || p.isTooLarge(r) {
			continue // reserve keeps room for it
		}
		key := string(v.uid)
		now[key] = r.numbers
		items = append(items, schedule.Item{Key: key, Replicas: r.wanted, Weight: r.weight, Bytes: r.bytes, EachBytes: contract.BytesPerIndex})
	}
	return items, now
}

// anyShare counts every share.
func anyShare(*placement.Placement) bool { return true }

// present returns how many virtual replicas pods have of a resource, and which ones, by the shares
// that count.
func (r *resource) present(counts func(*placement.Placement) bool) (numbers map[string]int32, sets map[string]schedule.Set) {
	numbers, sets = map[string]int32{}, map[string]schedule.Set{}
	for i := range r.status.Placement {
		share := &r.status.Placement[i]
		if share.Incarnation == "" || !counts(share) {
			continue
		}
		if set := setOf(share).Below(r.wanted); len(set) > 0 {
			numbers[share.PodName] += int32(len(set)) //nolint:gosec // at most MaxReplicas
			sets[share.PodName] = append(sets[share.PodName], set...)
		}
	}
	return numbers, sets
}

// isTooLarge reports whether an entry of a resource does not even fit into an empty contract.
func (p *pass) isTooLarge(r *resource) bool {
	return r.wanted > 0 && r.bytes+contract.BytesPerIndex > p.maxRoom
}

// held returns what pods keep of a resource that is too large, with the payloads that their
// contracts have. It is not scheduled, because no other contract can have it.
func (p *pass) held(v *version[*resource]) (numbers map[string]int32, sets map[string]schedule.Set) {
	return v.parsed.present(func(share *placement.Placement) bool { return p.keeps(v, share) })
}

// keeps reports whether the pod of a share has the contract for it, and the share stays where it is.
func (p *pass) keeps(v *version[*resource], share *placement.Placement) bool {
	c := p.contracts[share.PodName]
	return c != nil && c.parsed.contract.Incarnation == share.Incarnation && c.parsed.contract.Entry(v.uid) != nil &&
		p.states[share.PodName] != schedule.Ended && p.incarnationFor(v.parsed, share.PodName) == share.Incarnation
}

// reserve takes from the capacity and the room of pods what their contracts list of resources that
// are not scheduled: their status is malformed or pruned, their kind is missing, or they are too
// large.
func (p *pass) reserve() {
	for i := range p.pods {
		pod := &p.pods[i]
		c := p.contracts[pod.Name]
		if c == nil {
			continue
		}
		load, bytes := 0, 0
		for j := range c.parsed.contract.Entries {
			e := &c.parsed.contract.Entries[j]
			weight := 1
			switch v := p.byUID[e.UID]; {
			case v != nil && v.parsed.isUsable() && !p.isTooLarge(v.parsed), v == nil && p.isGone(e.UID):
				continue
			case v != nil:
				weight = max(int(v.parsed.weight), 1)
			}
			held := contract.Placed{Reference: e.Reference, Of: e.Of, Payload: e.Payload}
			load += weight * len(e.Replicas)
			bytes += held.Bytes(int32(len(e.Replicas))) //nolint:gosec // at most MaxReplicas
		}
		if pod.Room > 0 {
			pod.Room = max(pod.Room-bytes, 1)
		}
		capacity := int(pod.Capacity)
		if capacity == 0 {
			capacity = int(p.Capacity)
		}
		if capacity > 0 && load > 0 {
			if pod.Capacity = int32(max(capacity-load, 0)); pod.Capacity == 0 { //nolint:gosec // at most the capacity
				pod.Capacity = -1 // it bears nothing
			}
		}
	}
}

// isCalm reports whether nothing is on its way, so that the load may be evened out.
func (p *pass) isCalm(pending map[string]int32) bool {
	if p.Rebalance == 0 || len(pending) > 0 || len(p.kinds) < len(p.Kinds) {
		return false
	}
	for i := range p.pods {
		if p.pods[i].State == schedule.Closed || p.pods[i].State == schedule.Leaving {
			return false
		}
	}
	for _, v := range p.resources {
		if v.parsed.isUsable() && len(v.parsed.status.Releasing) > 0 {
			return false
		}
	}
	return true
}

// decideOne returns the status of a resource with the next decision. The argument present is what
// pods keep of a resource that is too large; it is nil for any other one.
func (p *pass) decideOne(r *resource, present map[string]schedule.Set, next map[string]int32) (placement.Status, error) {
	if p.staysAsItIs(r, next) {
		status := r.status
		status.ObservedGeneration = r.generation()
		return status, nil
	}
	return p.decideAnew(r, present, next)
}

func (p *pass) decideAnew(r *resource, present map[string]schedule.Set, next map[string]int32) (placement.Status, error) {
	floor := contract.Floor{Contracts: p.highest[r.uid()], Time: time.Now()}
	status, _, err := contract.Release(r.status, r.uid(), p.viewOf(r), p.hasEnded, floor)
	if err != nil {
		return status, err
	}
	if !p.isTooLarge(r) {
		_, present = r.present(anyShare)
	}
	numbered := schedule.Number(r.wanted, present, next)
	want := make([]contract.Share, 0, len(numbered))
	for _, pod := range slices.Sorted(maps.Keys(numbered)) {
		want = append(want, contract.Share{Pod: pod, Incarnation: p.incarnationFor(r, pod), Indexes: numbered[pod]})
	}
	if status, _, err = contract.Decide(status, want, p.hasEnded, floor); err != nil {
		return status, err
	}
	status.ObservedGeneration = r.generation()
	return status, nil
}

// staysAsItIs reports whether a decision would change nothing: each pod keeps what it has. It saves
// most of the time of a pass.
func (p *pass) staysAsItIs(r *resource, next map[string]int32) bool {
	if !r.tidy || len(next) != len(r.numbers) || p.highest[r.uid()] > r.status.Decision {
		return false
	}
	for i := range r.status.Placement {
		share := &r.status.Placement[i]
		if next[share.PodName] != r.numbers[share.PodName] || p.incarnationFor(r, share.PodName) != share.Incarnation {
			return false
		}
	}
	return true
}

// incarnationFor returns the incarnation that gets the share of a pod: the holder of its Lease, or
// the owner of the share if the pod takes no new work.
func (p *pass) incarnationFor(r *resource, pod string) string {
	if m := p.members[pod]; m != nil && m.parsed.holder != "" && p.states[pod] != schedule.Closed {
		return m.parsed.holder
	}
	for i := range r.status.Placement {
		if r.status.Placement[i].PodName == pod {
			return r.status.Placement[i].Incarnation
		}
	}
	return ""
}

// report sets the conditions of a status, and reports whether the status must be written.
func (p *pass) report(v *version[*resource], status *placement.Status) bool {
	r := v.parsed
	conditions, working := ready.Of(&ready.Input{
		UID: v.uid, Generation: r.generation(), Wanted: r.wanted, Limited: r.limited, Invalid: r.invalid,
		TooLarge: p.tooLarge[v.uid] || p.isTooLarge(r), Status: *status, Pods: p.readyPod(r), Now: p.now,
	})
	held, wait := ready.Hold(r.status.Conditions, conditions, p.now)
	if wait > 0 {
		p.wake(wait)
	}
	p.working += working
	p.announceLate(v, held)
	status.Conditions, status.ReadyVReplicas = held, working
	if r.kind.AnnotationPrefix != "" {
		status.ObservedGeneration = 0 // it belongs to the kind's own controller
	}
	return p.mustWrite(v, r.storable(*status))
}

// mustWrite reports whether a status that can be stored must be written.
func (p *pass) mustWrite(v *version[*resource], next placement.Status) bool {
	before, last := &v.parsed.status, p.verdicts[v.uid]
	switch {
	case !isSameDecision(&next, before):
		return true
	case !isSameVerdict(&next, before):
		return !last.repeats(&next) || p.isDue(last.at, verdictPeriod)
	case !isSameSince(next.Conditions, before.Conditions):
		return true
	case isSameDetail(&next, before):
		return false
	}
	if last == nil {
		return true
	}
	since := last.at
	if p.granted.After(since) && p.now.Sub(since) < maxDetailDelay {
		since = p.granted
	}
	return p.isDue(since, detailPeriod)
}

// isDue reports whether a period since the last write is over. If not, the next pass comes at its
// end.
func (p *pass) isDue(last time.Time, period time.Duration) bool {
	left := period - p.now.Sub(last)
	if left > 0 {
		p.wake(left)
	}
	return left <= 0
}

// answer is what the API server has stored of a status. It does not have the object: a pass may
// write thousands.
type answer struct {
	newest  *version[*resource]
	err     error
	missing string // the field that is missing, if there is one
	// unreadable is set if the stored status is malformed.
	unreadable bool
	lacks      []string // the optional fields that are missing, of a kind with annotations
}

// writeStatuses writes statuses, with the versions that they were computed from as preconditions. It
// returns those that were written.
func (p *pass) writeStatuses(ctx context.Context, changes []change) (written []change) {
	answers := make([]answer, len(changes))
	inParallel(ctx, len(changes), func(ctx context.Context, i int) { answers[i] = changes[i].write(ctx) })
	for i, c := range changes {
		r, a := c.version.parsed, &answers[i]
		if a.err != nil {
			p.failed(ctx, "status "+string(c.version.uid), c.version.resourceVersion, a.err, "Writing a status failed", "resource", r.ref())
			continue
		}
		delete(p.failures, "status "+string(c.version.uid))
		stored := r.storable(c.status)
		p.verdicts[c.version.uid] = newVerdict(&stored, time.Now())
		p.goOnWith(a.newest, c.version)
		p.checkStored(ctx, r, a)
		written = append(written, c)
	}
	return written
}

// write writes a status.
func (c *change) write(ctx context.Context) answer {
	r := c.version.parsed
	next, err := r.withStatus(&c.status)
	if err != nil {
		return answer{err: err}
	}
	stored, err := r.kind.client.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return answer{err: err} // logged with the resource
	}
	status, err := r.kind.decodeStatus(stored)
	return answer{
		newest: r.kind.store.wrote(stored), missing: missingField(&status, &c.status), unreadable: err != nil, lacks: r.kind.missing(stored),
	}
}

// checkStored checks that the API server has stored a status. If it has not, nothing more is
// written to the kind.
func (p *pass) checkStored(ctx context.Context, r *resource, a *answer) {
	for _, field := range a.lacks {
		r.kind.lacks[field] = true
	}
	isOptional := r.kind.AnnotationPrefix != "" && slices.Contains(optionalFields, a.missing)
	if !a.unreadable && (a.missing == "" || isOptional) || r.kind.pruned {
		return
	}
	r.kind.pruned = true
	logr.FromContextOrDiscard(ctx).Info("The API server does not store the whole status: nothing more is written to this kind", "kind", r.kind.GroupVersionKind.Kind, "resource", r.ref(), "field", a.missing)
	p.events.warn(r.about(), eventStatusPruned, fmt.Sprintf("the API server does not store %s.%s: add the fields of placement.Status to the schema of %s, and restart the controller; until then it grants nothing to resources of this kind", strings.Join(r.kind.StatusPath, "."), a.missing, r.kind.GroupVersionKind.Kind))
}

// goOnWith makes the rest of the pass use the newest version of a resource after a write or a live
// read. It is nil if the resource is deleted by now. The argument before may be nil.
func (p *pass) goOnWith(newest, before *version[*resource]) {
	if newest == nil || before != nil && newest.uid != before.uid {
		return
	}
	p.fresh[newest.uid] = freshness{newest.resourceVersion, p.number}
	p.byUID[newest.uid] = newest
	at, found := slices.BinarySearchFunc(p.resources, newest.uid, func(v *version[*resource], uid types.UID) int { return cmp.Compare(v.uid, uid) })
	if found {
		p.resources[at] = newest
	}
}
