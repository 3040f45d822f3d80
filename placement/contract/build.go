package contract

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// Placed is a resource as Build sees it.
type Placed struct {
	Reference
	// Generation is that of the resource, Of how many virtual replicas it has.
	Generation int64
	Of         int32
	// Payload is JSON, or nil for none. A payload that is not JSON is left out.
	Payload json.RawMessage
	// Status is the decision.
	Status placement.Status
	// Live means that the decision was read from the API server, or written, after the contract was
	// seen as it is now. An entry that the contract does not have is only made of such a decision:
	// the contract cannot tell which decisions it has seen before.
	Live bool
	// Gone means that a live read has found the resource gone, or another one in its place.
	Gone bool
}

// Input is what the contract of a pod is built from.
type Input struct {
	// Incarnation is the present holder of the pod's Lease.
	Incarnation string
	// View is the pod's contract and acknowledgement.
	View *View
	// Placed are the resources whose decision names the incarnation, and those that the contract
	// has entries of. A resource that is missing here counts as unknown, not as gone.
	Placed []Placed
	// Overlap lets the former owner work until the new one does.
	Overlap bool
	// Owners has the views of other incarnations. Only Overlap needs it.
	Owners func(incarnation string) (*View, bool)
	// Most is how many bytes a contract may have; 0: MaxBytes.
	Most int
}

// Action tells what to do with the ConfigMap of a contract.
type Action int

// The actions.
const (
	Nothing Action = iota
	Create         // an empty ConfigMap, without a contract; build again once it is seen
	Delete         // with its uid and resourceVersion as preconditions: it cannot be read
	Update         // with the resourceVersion as the precondition
)

// Plan is what Build finds.
type Plan struct {
	Action   Action
	Contract Contract // for Update
	// Read names the resources whose decisions must be read live before their entries can be made or
	// removed. The other entries are as they should be.
	Read []types.UID
	// TooLarge names the resources that did not fit.
	TooLarge []types.UID
}

// Build returns the contract that a pod should have.
func Build(in *Input) Plan {
	v := in.View
	switch {
	case v.ConfigMap == "":
		return Plan{Action: Create}
	case v.Unreadable:
		return Plan{Action: Delete}
	}
	b := &builder{Input: in, placed: make(map[types.UID]*Placed, len(in.Placed))}
	for i := range in.Placed {
		b.placed[in.Placed[i].UID] = &in.Placed[i]
	}
	// Entries of another incarnation are dropped at once: they were never for this one.
	isOwn := v.Contract.Incarnation == in.Incarnation
	if isOwn {
		b.takeOver()
	}
	b.add(isOwn)
	next := Contract{Incarnation: in.Incarnation, Generation: max(v.Contract.Generation, v.Ack.Generation) + 1, unknown: v.Contract.unknown}
	// An acknowledgement that is not known, of a generation that the contract has yet to reach, must be
	// overtaken.
	isOvertaken := isOwn && v.Ack.Incarnation == in.Incarnation && v.Ack.Generation >= v.Contract.Generation && v.Ack.Generation > 0 && !v.Known()
	b.limit(next)
	changed := !isOwn || isOvertaken || b.removed
	for i := range b.rows {
		r := &b.rows[i]
		if r.entry.Changed == 0 || isOvertaken {
			r.entry.Changed, changed = next.Generation, true
		}
		next.Entries = append(next.Entries, r.entry)
	}
	slices.SortFunc(next.Entries, compareUIDs)
	plan := Plan{Read: b.reads, TooLarge: b.tooLarge}
	if changed {
		plan.Action, plan.Contract = Update, next
	}
	return plan
}

type builder struct {
	*Input
	placed   map[types.UID]*Placed
	rows     []entryRow
	removed  bool // an entry is left out
	reads    []types.UID
	tooLarge []types.UID
}

// entryRow is an entry as it should be. Its Changed is 0 if it is not as before.
type entryRow struct {
	entry  Entry
	before *Entry
	since  int64 // of the share and of the release
}

// takeOver goes through the entries that there are.
func (b *builder) takeOver() {
	for i := range b.View.Contract.Entries {
		e := &b.View.Contract.Entries[i]
		p := b.placed[e.UID]
		switch {
		case p == nil: // nobody knows whether it is gone: the cache may be behind
			b.reads = append(b.reads, e.UID)
			b.keep(e)
		case p.Gone:
			b.removed = true
		case e.Decision > p.Status.Decision:
			b.keep(e) // built from a later decision than this one
		default:
			b.renew(p, e)
		}
	}
}

func (b *builder) keep(e *Entry) { b.rows = append(b.rows, entryRow{entry: *e, before: e}) }

// add makes entries for those that have none.
func (b *builder) add(isOwn bool) {
	for i := range b.Placed {
		p := &b.Placed[i]
		if p.Gone || isOwn && b.View.Contract.Entry(p.UID) != nil {
			continue
		}
		if _, _, names := names(&p.Status, b.Incarnation); !names {
			continue
		}
		if !p.Live {
			b.reads = append(b.reads, p.UID)
			continue
		}
		b.renew(p, nil)
	}
}

// names returns what an incarnation owns and releases by a decision, and reports whether that is
// anything.
func names(s *placement.Status, incarnation string) (owned, released *placement.Placement, isNamed bool) {
	for i := range s.Placement {
		if s.Placement[i].Incarnation == incarnation {
			owned, isNamed = &s.Placement[i], true
		}
	}
	for i := range s.Releasing {
		if s.Releasing[i].Incarnation == incarnation {
			released, isNamed = &s.Releasing[i], true
		}
	}
	return owned, released, isNamed
}

// renew makes the entry of a resource from its decision; before is the present one.
func (b *builder) renew(p *Placed, before *Entry) {
	owned, released, isNamed := names(&p.Status, b.Incarnation)
	if !isNamed {
		b.removed = true
		return
	}
	next := Entry{Reference: p.Reference, Generation: p.Generation, Decision: p.Status.Decision, Of: p.Of, Payload: compact(p.Payload)}
	replicas, err := b.replicas(p, before, owned, released)
	if err != nil { // a status that cannot be read takes nothing away
		if before != nil {
			b.keep(before)
		}
		return
	}
	next.Replicas = replicas
	if before != nil {
		next.unknown = before.unknown
	}
	r := entryRow{entry: next, before: before, since: max(sinceOf(owned), sinceOf(released))}
	r.settle()
	b.rows = append(b.rows, r)
}

// settle leaves the entry as it was if nothing about it changes for the pod, and it was not built from
// a decision before the one that changed its share.
func (r *entryRow) settle() {
	if r.before != nil && isSame(&r.entry, r.before) && r.before.Decision >= r.since {
		r.entry = *r.before
	}
}

func sinceOf(p *placement.Placement) int64 {
	if p == nil {
		return 0
	}
	return p.Since
}

// isSame compares what an entry tells the pod.
func isSame(a, b *Entry) bool {
	return a.Reference == b.Reference && a.Generation == b.Generation && a.Of == b.Of &&
		maps.Equal(a.Replicas, b.Replicas) && bytes.Equal(a.Payload, b.Payload)
}

// replicas returns what an entry lists.
func (b *builder) replicas(p *Placed, before *Entry, owned, released *placement.Placement) (map[int32]int64, error) {
	listed := map[int32]int64{}
	own, err := set(owned)
	if err != nil {
		return nil, err
	}
	former, err := set(released)
	if err != nil {
		return nil, err
	}
	held, err := releasing(&p.Status)
	if err != nil {
		return nil, err
	}
	for _, index := range own {
		epoch, lists := before.Lists(index)
		switch {
		case lists:
			listed[index] = epoch
		case b.Overlap || !held[index]:
			listed[index] = p.Status.Decision
		}
	}
	for _, index := range former {
		epoch, lists := before.Lists(index)
		if _, isOwn := listed[index]; lists && !isOwn && b.Overlap && b.mustGoOn(p, index) {
			listed[index] = epoch
		}
	}
	return listed, nil
}

// mustGoOn reports whether an index has an owner that does not work on it yet.
func (b *builder) mustGoOn(p *Placed, index int32) bool {
	for i := range p.Status.Placement {
		share := &p.Status.Placement[i]
		indexes, err := share.Set()
		if err != nil || !indexes.Has(index) {
			continue
		}
		v, isKnown := b.Owners(share.Incarnation)
		return !isKnown || !v.Works(p.UID, share, index)
	}
	return false
}

func set(p *placement.Placement) (schedule.Set, error) {
	if p == nil {
		return nil, nil
	}
	return p.Set()
}

// releasing returns the indexes that somebody still releases.
func releasing(s *placement.Status) (map[int32]bool, error) {
	if len(s.Releasing) == 0 {
		return nil, nil
	}
	all := map[int32]bool{}
	for i := range s.Releasing {
		indexes, err := s.Releasing[i].Set()
		if err != nil {
			return nil, err
		}
		for _, index := range indexes {
			all[index] = true
		}
	}
	return all, nil
}
