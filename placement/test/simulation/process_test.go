package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nodekeeper.dev/placement/contract"
)

// worker is the worker of one vreplica.
type worker struct {
	contract.Work
	stopping  bool
	neverEnds bool
	neverRuns bool
}

// process is the agent in a pod.
type process struct {
	*simulation
	name int
	uid  string // UID of the pod

	alive   bool
	frozen  bool
	thawing bool // it was frozen past its deadline, and its workers have not returned yet
	cut     bool // it cannot reach the API server
	lost    bool // it has seen that its Lease is not its own any longer
	leaves  bool // it stops its workers and then releases its Lease, because its pod is terminating
	returns bool // it does so without a reason, and joins again
	former  string

	killedAt int // when it is killed because its pod is deleted; 0: it is not deleted

	rate        int // rate of its clock, in tenths
	incarnation string
	renewed     int          // when its last successful renewal began, by its own clock
	lease       *lease       // the last version that it has observed
	ack         contract.Ack // the acknowledgement that the Lease must have
	contract    contract.Contract
	digest      string
	last        int64 // the generation for Accepts
	followed    int   // since when it has followed the contract
	position    int   // position in the log of contracts
	running     map[contract.Unit]*worker
}

func (p *process) String() string {
	return podName(p.name) + "(" + cmp.Or(p.incarnation, p.uid) + ")"
}

func unitText(u contract.Unit) string { return fmt.Sprintf("%s[%d]", u.UID, u.Index) }

func (p *process) clock() int { return p.world.now * p.rate / 10 }

// isLost reports whether the process must consider its Lease lost.
func (p *process) isLost() bool {
	return p.incarnation == "" || p.lost || p.isOverdue() && !p.settings.keeps
}

// isOverdue reports whether the process could not renew its Lease in time.
func (p *process) isOverdue() bool { return p.clock()-p.renewed >= renewDeadline }

// isLate reports whether the process may work on what has another owner by now.
func (p *process) isLate() bool {
	return p.frozen || p.thawing || p.settings.keeps && p.incarnation != "" && p.isOverdue()
}

// tick fires the timers of a process.
func (p *process) tick() {
	if p.alive && p.killedAt > 0 && p.world.now >= p.killedAt {
		p.kill()
	}
	if !p.alive || p.frozen || p.incarnation == "" || !p.isLost() {
		return
	}
	p.cancel()
	if p.clock()-p.renewed >= renewDeadline+stopTime { // when it has seen that late, too
		p.world.record("%s has lost its Lease, and all its workers have returned", p)
		p.forget()
	}
}

func (p *process) cancel() {
	for _, w := range p.running {
		w.stopping = true
	}
}

// forget ends the incarnation. No workers are left running.
func (p *process) forget() {
	clear(p.running)
	p.incarnation, p.lease, p.ack, p.contract, p.digest, p.last = "", nil, contract.Ack{}, contract.Contract{}, "", 0
	p.thawing, p.lost = false, false
}

// crash ends the process. The container restarts.
func (p *process) crash() {
	p.world.record("%s crashes", p)
	p.forget()
	p.frozen = false
}

// next takes one step of the agent.
func (p *process) next() {
	switch {
	case !p.alive || p.frozen:
	case p.incarnation == "":
		p.join()
	case p.isLost():
		if p.stepWorkers(); len(p.running) == 0 {
			p.forget()
		}
	case p.clock()-p.renewed >= leaseDuration/3 && !p.followsFirst():
		p.writeLease()
	case p.leaves && (len(p.running) == 0 || p.mutant.releasesEarly && p.world.lease(p.name) == p.lease):
		p.release()
	default:
		p.follow()
		p.stepWorkers()
		p.acknowledge()
	}
}

// followsFirst reports whether an agent that keeps its work follows its contract before it tries to
// renew the Lease again.
func (p *process) followsFirst() bool {
	return p.isOverdue() && p.settings.keeps && p.choices.Next(2) == 1
}

// join acquires the Lease, or adopts the incarnation of the previous process of this pod.
func (p *process) join() {
	if p.returns {
		p.leaves, p.returns = false, false
	}
	if p.cut || p.leaves {
		return
	}
	l := p.world.lease(p.name)
	started := p.clock()
	if l != nil && l.holder != "" {
		if strings.HasPrefix(l.holder, p.uid+"/") {
			p.adopt(l, started)
			return
		}
		if !p.mutant.takesAnyLease {
			return // an agent never takes the Lease of another pod
		}
	}
	next := lease{holder: p.uid + "/" + p.world.nextUID("")}
	if p.mutant.noRun {
		next.holder = p.uid + "/"
	}
	if p.mutant.sameRun && p.former != "" {
		next.holder = p.former
	}
	if l != nil {
		next.uid, next.owner, next.ended, next.earlier, next.ack = l.uid, l.owner, cmp.Or(l.holder, l.ended), l.earlier, l.ack
	} else {
		next.owner = p.ownerOfPodObject(leaseKind, p.uid)
	}
	p.send(func() {
		if stored := p.world.putLease(p.name, l, next); stored != nil && p.alive && !p.frozen && p.incarnation == "" {
			p.incarnation, p.lease, p.ack, p.renewed = next.holder, stored, next.ack, started
			p.position = len(p.world.log[contractKind])
			p.read(p.world.contract(p.name))
			p.world.record("%s joins", p)
		}
	})
}

// adopt continues the incarnation of the previous process. No worker starts before the Lease is
// renewed, and the contract is read after that.
func (p *process) adopt(l *lease, started int) {
	next, last := *l, int64(0)
	if l.ack.Incarnation == l.holder {
		last, next.ack = contract.Adopt(l.ack)
	}
	if p.mutant.adoptsBlindly {
		p.incarnation, p.lease, p.ack, p.renewed, p.last = l.holder, l, l.ack, started, last
		p.position = len(p.world.log[contractKind])
		p.read(p.world.contract(p.name))
		return
	}
	p.send(func() {
		stored := p.world.putLease(p.name, l, next)
		if stored == nil || !p.alive || p.frozen || p.incarnation != "" {
			return
		}
		p.incarnation, p.lease, p.ack, p.renewed, p.last = l.holder, stored, next.ack, started, last
		p.world.record("%s adopts its incarnation", p)
		if p.mutant.adoptsCached {
			p.adoptCached()
			return
		}
		p.position = len(p.world.log[contractKind])
		p.read(p.world.contract(p.name))
	})
}

// adoptCached continues without these precautions, for a mutant.
func (p *process) adoptCached() {
	log := p.world.log[contractKind]
	p.last, p.position = 0, max(0, len(log)-p.choices.Next(len(log)+1))
	for at := p.position - 1; at >= 0; at-- {
		if e := log[at]; e.key == p.name {
			if c, _ := e.object.(*configMap); c != nil {
				p.read(c)
			}
			return
		}
	}
}

// send sends a write to the API server. The write may fail or arrive late, or its response may be
// lost. A response that is lost after the write is equivalent to one that arrives when the process
// reads again.
func (p *process) send(write func()) {
	switch {
	case p.cut:
	case p.choices.Happens(p.settings.lateWrites):
		p.world.record("%s: a write is under way for long", p)
		p.world.late = append(p.world.late, write)
	default:
		write()
	}
}

// writeLease renews the Lease with the current acknowledgement, even if a restore has rewound the
// Lease. A deleted Lease is not recreated: that write could arrive long after the incarnation has
// been considered ended, and a restarted process would adopt it.
func (p *process) writeLease() {
	if p.cut {
		return
	}
	started, incarnation := p.clock(), p.incarnation
	now := p.world.lease(p.name)
	switch {
	case now == nil && p.mutant.remakesLease:
	case now != nil && now != p.lease && now.holder == p.incarnation: // a response was lost
		p.lease = now
	case now != p.lease:
		if p.mutant.keepsLost && p.settings.keeps {
			return
		}
		p.world.record("%s sees that its Lease is taken or deleted", p)
		p.renewed, p.lost = started-renewDeadline, true
		p.tick()
		return
	}
	read, next := now, *p.lease
	if !p.mutant.forgetsAck {
		next.ack = p.ack
	}
	p.send(func() {
		stored := p.world.putLease(p.name, read, next)
		if stored != nil && p.incarnation == incarnation && p.alive {
			p.lease, p.renewed = stored, max(p.renewed, started)
		}
	})
}

// release releases the Lease. If that write is under way for long, a process that returns adopts
// its incarnation, which makes the write fail.
func (p *process) release() {
	if p.cut || p.lease == nil || p.world.lease(p.name) != p.lease {
		return
	}
	p.world.record("%s releases its Lease", p)
	read, next := p.lease, p.lease.free()
	p.send(func() {
		if p.mutant.releasesBlindly {
			read = p.world.lease(p.name)
		}
		p.world.putLease(p.name, read, next)
	})
	if len(p.running) > 0 { // a mutant
		return
	}
	p.former = p.incarnation
	p.forget()
	if p.returns {
		return
	}
	p.exit()
}

// follow processes events of the watch.
func (p *process) follow() {
	if p.cut {
		return
	}
	log := p.world.log[contractKind]
	for n := 2 - p.choices.Next(3); n > 0 && p.position < len(log); p.position++ {
		if e := log[p.position]; e.key == p.name {
			n--
			if c, _ := e.object.(*configMap); c != nil {
				p.read(c)
			}
		}
	}
}

func (p *process) read(c *configMap) {
	if c == nil {
		return
	}
	accepts := contract.Accepts(p.incarnation, p.last, &c.contract)
	if p.mutant.anyContract {
		accepts = c.contract.Generation > p.last
	}
	if !accepts {
		return
	}
	p.contract, p.digest, p.last, p.followed = c.contract, c.digest, c.contract.Generation, p.clock()
	p.world.record("%s follows generation %d: %s", p, p.last, contractText(&p.contract))
}

func contractText(c *contract.Contract) string {
	var b strings.Builder
	for i := range c.Entries {
		e := &c.Entries[i]
		fmt.Fprintf(&b, "%s@%d", e.UID, e.Decision)
		for _, index := range slices.Sorted(maps.Keys(e.Replicas)) {
			fmt.Fprintf(&b, " [%d]:%d", index, e.Replicas[index])
		}
		b.WriteString("; ")
	}
	return cmp.Or(b.String(), "nothing")
}

// work returns the running workers in the form that the real functions use.
func (p *process) work() map[contract.Unit]contract.Work {
	m := make(map[contract.Unit]contract.Work, len(p.running))
	for u, w := range p.running {
		m[u] = w.Work
	}
	return m
}

// stepWorkers stops and starts workers and advances them.
func (p *process) stepWorkers() {
	if p.isLost() || p.leaves {
		p.cancel()
	} else {
		stop, start := contract.Apply(&p.contract, p.work())
		for _, u := range stop {
			p.running[u].stopping = true
		}
		for _, u := range start {
			p.start(u)
		}
	}
	for _, u := range slices.SortedFunc(maps.Keys(p.running), compareUnits) {
		w := p.running[u]
		switch {
		case w.stopping && !w.neverEnds && !p.choices.Happens(p.settings.slowWorkers):
			p.world.record("%s stopped %s", p, unitText(u))
			delete(p.running, u)
		case !w.stopping && !w.Working && !w.neverRuns && !p.choices.Happens(p.settings.slowWorkers):
			w.Working = true
			p.world.record("%s works on %s", p, unitText(u))
			p.world.ghost.worked[task{u, p.incarnation}] = w.Epoch
		}
	}
	if len(p.running) == 0 {
		p.thawing = false
	}
}

func compareUnits(a, b contract.Unit) int {
	return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Index, b.Index))
}

func (p *process) start(u contract.Unit) {
	epoch, _ := p.contract.Entry(u.UID).Lists(u.Index)
	if p.contract.Incarnation != p.incarnation {
		p.world.breaks(errBrokeW8, "%s works by a contract of %s", p, p.contract.Incarnation)
	}
	w := &worker{Work: contract.Work{Epoch: epoch}}
	w.neverEnds, w.neverRuns = p.choices.Happens(p.settings.stuck), p.choices.Happens(p.settings.stuck)
	p.world.record("%s starts %s with epoch %d%s", p, unitText(u), epoch, map[bool]string{true: ", which never stops"}[w.neverEnds])
	p.running[u] = w
	p.world.ghost.starts(p.simulation, p, u, epoch)
}

// acknowledge writes an acknowledgement when everything is done, or after some time.
func (p *process) acknowledge() {
	if p.cut || p.contract.Incarnation == "" || p.world.lease(p.name) != p.lease || p.lease == nil {
		return
	}
	a, done := contract.Acknowledge(&p.contract, p.digest, p.work())
	switch {
	case p.mutant.acksEarly:
		a.Stopping = nil
	case !done && (p.mutant.acksLate || p.clock()-p.followed < stopTime):
		return
	}
	if ack := &p.lease.ack; a.Incarnation == ack.Incarnation && a.Generation == ack.Generation && a.Digest == ack.Digest &&
		maps.Equal(a.Failing, ack.Failing) && maps.EqualFunc(a.Stopping, ack.Stopping, slices.Equal) {
		return
	}
	next := *p.lease
	next.ack, p.ack = a, a
	started, incarnation, read := p.clock(), p.incarnation, p.lease
	// The acknowledgement is true when it is sent, even if it arrives late.
	p.world.ghost.acknowledges(p, &a)
	p.send(func() {
		stored := p.world.putLease(p.name, read, next)
		if stored == nil {
			return
		}
		p.world.record("%s acknowledged %d", p, a.Generation)
		p.world.writes++
		if p.incarnation == incarnation && p.alive {
			p.lease, p.renewed = stored, max(p.renewed, started)
		}
	})
}
