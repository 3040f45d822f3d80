package simulation

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

const (
	pods      = 3
	resources = 2
	maxWanted = 4

	// Times are in seconds. One tick of the world is one second.
	leaseDuration = 15
	renewDeadline = 10
	stopTime      = 5
	patience      = 30
)

// kind is a kind of object for which controllers have a cache.
type kind int

const (
	resourceKind kind = iota
	contractKind
	leaseKind
	podKind
	kinds
)

var kindText = [kinds]string{"resource", "contract", "Lease", "pod"} //nolint:gochecknoglobals // a constant

// Stored objects are immutable; they are only replaced.

type resource struct {
	name       int
	uid, owner types.UID
	rv         int
	generation int64
	wanted     int32
	status     placement.Status
}

type configMap struct {
	uid, owner types.UID
	rv         int
	contract   contract.Contract
	digest     string
}

type lease struct {
	uid, owner types.UID
	rv         int
	holder     string
	ended      string
	earlier    []string // that have ended before
	ack        contract.Ack
}

// free returns a Lease whose holder has ended.
func (l *lease) free() lease {
	next := lease{uid: l.uid, owner: l.owner, ended: l.holder, earlier: l.earlier, ack: l.ack}
	if l.ended != "" {
		next.earlier = append([]string{l.ended}, l.earlier...)
	}
	return next
}

// proves reports whether an incarnation has ended.
func (l *lease) proves(incarnation string) bool {
	return l.ended == incarnation || slices.Contains(l.earlier, incarnation)
}

type pod struct {
	uid        string
	terminated bool
	leaving    bool
	removed    bool // the StatefulSet has fewer replicas
}

// event is a change of one object; its object is nil for a deletion.
type event struct {
	key    int
	object any
}

// world is the API server and the time.
type world struct {
	now    int
	wall   int64 // the time of all clocks in milliseconds; there is less than one write in each
	rv     int
	uids   int
	log    [kinds][]event
	stored [kinds][pods]any
	late   []func() // writes in flight
	undo   []undo   // all changes, so that a restore can go back

	writes int // excluding renewals
	ghost  ghost
	broken error
	trace  []string
	tracks bool
}

func (w *world) reset(tracks bool) {
	log := w.log
	for k := range log {
		log[k] = log[k][:0]
	}
	*w = world{log: log, tracks: tracks, late: w.late[:0], undo: w.undo[:0], trace: w.trace[:0], ghost: w.ghost}
	w.ghost.reset()
}

func (w *world) record(format string, args ...any) {
	if w.tracks {
		w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.now)+fmt.Sprintf(format, args...))
	}
}

func (w *world) breaks(err error, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: "+format, append([]any{err}, args...)...)
		w.record("!!! %v", w.broken)
	}
}

func (w *world) nextRV() int {
	w.rv++
	w.wall++
	return w.rv
}

func (w *world) nextUID(prefix string) string {
	w.uids++
	return prefix + strconv.Itoa(w.uids)
}

func (w *world) store(k kind, key int, object any) {
	w.undo = append(w.undo, undo{k, key, w.stored[k][key]})
	w.stored[k][key] = object
	w.log[k] = append(w.log[k], event{key, object})
}

func (w *world) resource(name int) *resource {
	r, _ := w.stored[resourceKind][name].(*resource)
	return r
}

func (w *world) contract(name int) *configMap {
	c, _ := w.stored[contractKind][name].(*configMap)
	return c
}

func (w *world) lease(name int) *lease {
	l, _ := w.stored[leaseKind][name].(*lease)
	return l
}

func (w *world) pod(name int) *pod {
	p, _ := w.stored[podKind][name].(*pod)
	return p
}

// putStatus is conditional on the resourceVersion, unless a mutant omits the precondition.
func (w *world) putStatus(read *resource, status placement.Status, blindly bool) *resource {
	now := w.resource(read.name)
	if now == nil || now.uid != read.uid || now.rv != read.rv && !blindly {
		return nil
	}
	next := *now
	next.status, next.rv = status, w.nextRV()
	w.store(resourceKind, read.name, &next)
	w.writes++
	return &next
}

// putContract is conditional on the resourceVersion, unless a mutant omits the precondition.
func (w *world) putContract(name int, read *configMap, c contract.Contract, blindly bool) *configMap {
	now := w.contract(name)
	if now == nil || now.uid != read.uid || now.rv != read.rv && !blindly {
		return nil
	}
	next := &configMap{uid: now.uid, owner: now.owner, rv: w.nextRV(), contract: c, digest: contract.Digest(c.Encode())}
	w.store(contractKind, name, next)
	w.writes++
	return next
}

func (w *world) createContract(name int, owner types.UID, c contract.Contract) *configMap {
	if w.contract(name) != nil {
		return nil
	}
	next := &configMap{uid: types.UID(w.nextUID("cm")), owner: owner, rv: w.nextRV(), contract: c, digest: contract.Digest(c.Encode())}
	w.store(contractKind, name, next)
	w.writes++
	return next
}

// putLease is conditional on the given version of the Lease. If that is nil, it creates the Lease.
func (w *world) putLease(name int, read *lease, next lease) *lease {
	if w.lease(name) != read {
		return nil
	}
	if next.rv = w.nextRV(); read == nil {
		next.uid = types.UID(fmt.Sprintf("lease%d", next.rv))
	}
	w.store(leaseKind, name, &next)
	if next.holder != "" {
		w.ghost.renewed[next.holder] = w.now
	}
	return &next
}

func podName(name int) string { return "w" + strconv.Itoa(name) }
