package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
)

// pass is one run of the loop: what was seen, and what follows from it.
type pass struct {
	*loop

	now       time.Time
	due       time.Duration // after which the next pass must come, or 0
	members   map[string]*version[*member]
	contracts map[string]*version[*stored]
	resources []*version[*resource] // in the order of their keys
	byUID     map[types.UID]*version[*resource]
	holders   map[string]string // the pod by the incarnation that holds its Lease
	views     map[string]*contract.View
	highest   map[types.UID]int64 // the highest decision or epoch in any contract
	pods      []schedule.Pod
	states    map[string]schedule.State

	set      *version[*workload]  // the StatefulSet of the pool, or nil
	lostPods map[string]time.Time // since when the last incarnation of a pod is lost
	maxRoom  int                  // of an empty contract
	// contractors holds the pods by the incarnations that their contracts are for.
	contractors map[string]string

	working    int32           // virtual replicas that are worked on
	rebalanced map[origin]bool // what this pass moves to even out the load
}

// pass makes one pass. It returns when the next one must come even if nothing changes, or 0.
func (l *loop) pass(ctx context.Context) time.Duration {
	l.number++
	p := &pass{loop: l, now: time.Now()}
	p.see()
	p.noteStatefulSet(ctx)
	p.observeLags()
	p.takeOver(ctx)
	p.createContracts(ctx)
	p.survey(ctx)
	p.schedulePods()
	written := p.writeStatuses(ctx, p.decide(ctx))
	p.writeContracts(ctx)
	p.announce(written) // work waits for contracts, but not for events
	p.removeEnded(ctx)
	p.forget()
	p.measure()
	p.metrics.passes.Observe(time.Since(p.now).Seconds())
	return p.due
}

// wake makes the next pass come after d at the latest.
func (p *pass) wake(d time.Duration) {
	d = max(d, passPeriod)
	if p.due == 0 || d < p.due {
		p.due = d
	}
}

// see takes everything that the stores have.
func (p *pass) see() {
	p.contracts = p.loop.contracts.all()
	for pod, v := range p.contracts {
		p.observe(pod, v, false)
		delete(p.foreign, pod) // it has the label of the pool now
	}
	for pod := range p.observed {
		if p.contracts[pod] == nil {
			delete(p.observed, pod)
		}
	}
	p.seeMembers()
	p.set = p.workloads.all()[p.StatefulSet]
	p.byUID = map[types.UID]*version[*resource]{}
	for _, k := range p.kinds {
		for _, v := range k.store.all() {
			p.resources = append(p.resources, v)
			p.byUID[v.uid] = v
		}
	}
	slices.SortFunc(p.resources, func(a, b *version[*resource]) int { return cmp.Compare(a.uid, b.uid) })
	p.views, p.highest = map[string]*contract.View{}, map[types.UID]int64{}
	for _, v := range p.contracts {
		for i := range v.parsed.contract.Entries {
			e := &v.parsed.contract.Entries[i]
			p.highest[e.UID] = max(p.highest[e.UID], e.Highest())
		}
	}
}

func (p *pass) seeMembers() {
	p.members, p.holders = p.leaseRows.all(), map[string]string{}
	for pod, v := range p.members {
		if v.parsed.holder != "" {
			p.holders[v.parsed.holder] = pod
			p.durations[v.parsed.holder] = p.duration(v)
		}
	}
}

// forget removes from memory what nothing refers to any longer.
func (p *pass) forget() {
	listed := map[types.UID]bool{}
	for _, v := range p.contracts {
		for i := range v.parsed.contract.Entries {
			listed[v.parsed.contract.Entries[i].UID] = true
		}
	}
	p.forgetFailures()
	for pod := range p.vigils {
		if p.members[pod] == nil {
			delete(p.vigils, pod)
		}
	}
	for pod := range p.foreign {
		if p.members[pod] == nil {
			delete(p.foreign, pod)
		}
	}
	for uid := range p.verdicts {
		if p.byUID[uid] == nil {
			delete(p.verdicts, uid)
		}
	}
	for uid := range p.gone {
		if !listed[uid] {
			delete(p.gone, uid)
		}
	}
	for _, k := range p.kinds {
		k.store.forget(func(uid types.UID) bool { return listed[uid] })
	}
	for uid := range p.fresh {
		if p.byUID[uid] == nil {
			delete(p.fresh, uid)
			delete(p.tooLarge, uid)
			delete(p.late, uid)
		}
	}
}

// view returns what is known of a pod.
func (p *pass) view(pod string) *contract.View {
	if v := p.views[pod]; v != nil {
		return v
	}
	v := &contract.View{}
	if c := p.contracts[pod]; c != nil {
		v.ConfigMap, v.Unreadable, v.Contract, v.Digest = c.uid, c.parsed.unreadable, c.parsed.contract, c.parsed.digest
		v.Seen = p.observed[pod].seen
	}
	if m := p.members[pod]; m != nil {
		v.Ack = m.parsed.ack
	}
	p.views[pod] = v
	return v
}

// viewOf returns the view of the pod that has an incarnation, by a decision.
func (p *pass) viewOf(r *resource) func(incarnation string) (*contract.View, bool) {
	return func(incarnation string) (*contract.View, bool) {
		pod, ok := podOf(r, incarnation)
		if !ok {
			return nil, false
		}
		return p.view(pod), true
	}
}

// podOf returns the pod of an incarnation by a decision.
func podOf(r *resource, incarnation string) (pod string, ok bool) {
	for i := range r.status.Placement {
		if r.status.Placement[i].Incarnation == incarnation {
			return r.status.Placement[i].PodName, true
		}
	}
	for i := range r.status.Releasing {
		if r.status.Releasing[i].Incarnation == incarnation {
			return r.status.Releasing[i].PodName, true
		}
	}
	return "", false
}

// readyPod returns the state of the pod of an incarnation for the conditions of a resource.
func (p *pass) readyPod(r *resource) func(incarnation string) (ready.Pod, bool) {
	return func(incarnation string) (ready.Pod, bool) {
		pod, ok := p.holders[incarnation]
		if !ok {
			if pod, ok = podOf(r, incarnation); !ok || p.members[pod] == nil {
				return ready.Pod{}, false
			}
		}
		m := p.members[pod]
		return ready.Pod{View: p.view(pod), Working: m.parsed.holder == incarnation && p.isHeld(m), Behind: p.behindSince(pod)}, true
	}
}

// schedulePods determines the states of the pods.
func (p *pass) schedulePods() {
	p.states = map[string]schedule.State{}
	add := func(pod schedule.Pod) {
		p.pods = append(p.pods, pod)
		p.states[pod.Name] = pod.State
	}
	for name, v := range p.members {
		pod := schedule.Pod{Name: name, Zone: v.parsed.zone, Capacity: v.parsed.capacity, Room: contract.MaxBytes - len(name) - len(v.parsed.holder) - contractOverhead, State: p.stateOf(name, v)}
		pod.Ordinal, _ = p.ordinal(name)
		p.capacities[name] = v.parsed.capacity
		if pod.State == schedule.Open || pod.State == schedule.Leaving {
			p.wake(p.duration(v) - p.now.Sub(v.at))
		}
		add(pod)
	}
	// A pod without a Lease keeps its work until its incarnation has ended, and while it is awaited.
	for _, v := range p.resources {
		for i := range v.parsed.status.Placement {
			share := &v.parsed.status.Placement[i]
			if _, known := p.states[share.PodName]; !known && share.Incarnation != "" && (!p.ended[share.Incarnation] || p.isAwaited(share.PodName)) {
				ordinal, _ := p.ordinal(share.PodName)
				add(schedule.Pod{Name: share.PodName, Ordinal: ordinal, Capacity: p.capacities[share.PodName], State: schedule.Closed})
			}
		}
	}
	maps.DeleteFunc(p.capacities, func(pod string, _ int32) bool {
		_, known := p.states[pod]
		return !known
	})
	slices.SortFunc(p.pods, func(a, b schedule.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.pods {
		p.maxRoom = max(p.maxRoom, p.pods[i].Room)
	}
	if p.maxRoom == 0 {
		p.maxRoom = contract.MaxBytes - contractOverhead
	}
}

// contractOverhead is the size of a contract without its entries and without incarnation, at most.
const contractOverhead = 1 << 10

// inParallel calls do for each number below n, some of them at a time.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int)) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			do(ctx, i)
			return nil
		})
	}
	_ = group.Wait() // no call returns an error
}
