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

// Placed is a resource for [Build].
type Placed struct {
	Reference
	// Generation is the generation of the resource, Of its number of virtual replicas.
	Generation int64
	Of         int32
	// Payload is JSON or nil. A payload that is not JSON is omitted.
	Payload json.RawMessage
	// Status contains the decision.
	Status placement.Status
	// Live is set if the decision was read from the API server, or written, after the present
	// version of the contract was observed. Build requires that for new entries, because the
	// contract does not show which decisions it has been built from before.
	Live bool
	// Gone is set if a live read shows that the resource does not exist, or exists with another
	// UID.
	Gone bool
}

// Input is the input of [Build].
type Input struct {
	// Incarnation is the present holder of the pod's Lease.
	Incarnation string
	// View is the pod's contract and acknowledgement.
	View *View
	// Placed must contain the resources whose decisions name the incarnation, and the resources
	// with entries in the contract. A missing resource counts as unknown, not as gone.
	Placed []Placed
	// Overlap lets the former owner of an index work until the new one does.
	Overlap bool
	// Owners returns the views of other incarnations, if these renew their Leases. It is required only
	// for Overlap.
	Owners func(incarnation string) (*View, bool)
	// Most is the maximum size of the contract in bytes. If zero, it is MaxBytes.
	Most int
}

// Action is an action on the ConfigMap of a contract.
type Action int

// The actions of a [Plan].
const (
	Nothing Action = iota
	Create         // create an empty ConfigMap without a contract; build again once it is observed
	Delete         // delete it, with its UID and resourceVersion as preconditions: it is malformed
	Update         // update it, with its resourceVersion as the precondition
)

// Plan is the result of [Build].
type Plan struct {
	Action   Action
	Contract Contract // set for Update
	// Read lists the resources whose decisions must be read live before their entries can be added
	// or removed. The other entries are final.
	Read []types.UID
	// TooLarge lists the resources that did not fit.
	TooLarge []types.UID
}

// Build returns the plan for a pod's contract. The plan contains a contract only if the contract
// must change.
func Build(in *Input) Plan {
	v := in.View
	switch {
	case v.ConfigMap == "":
		return Plan{Action: Create}
	case v.Unreadable, v.Contract.Generation >= placement.MaxNumber:
		return Plan{Action: Delete}
	}
	b := &builder{Input: in, placed: make(map[types.UID]*Placed, len(in.Placed)), rows: make([]entryRow, 0, len(in.Placed))}
	for i := range in.Placed {
		b.placed[in.Placed[i].UID] = &in.Placed[i]
	}
	// Entries of another incarnation are dropped at once: they never applied to this one.
	own := v.Contract.Incarnation == in.Incarnation
	if own {
		b.takeOver()
	}
	b.add(own)
	overtake := own && v.isAhead()
	stays := func() bool {
		return own && !overtake && !b.removed && !slices.ContainsFunc(b.rows, func(r entryRow) bool { return r.entry.Changed == 0 })
	}
	if stays() {
		return Plan{Read: b.reads} // as for most contracts in most passes
	}
	next := Contract{Incarnation: in.Incarnation, Generation: max(v.Contract.Generation, v.acknowledgedGeneration()) + 1, unknown: v.Contract.unknown}
	b.limit(next)
	plan := Plan{Read: b.reads, TooLarge: b.tooLarge}
	if stays() {
		return plan
	}
	next.Entries = make([]Entry, 0, len(b.rows))
	for i := range b.rows {
		r := &b.rows[i]
		if r.entry.Changed == 0 || overtake {
			r.entry.Changed = next.Generation
		}
		next.Entries = append(next.Entries, r.entry)
	}
	slices.SortFunc(next.Entries, compareUIDs)
	plan.Action, plan.Contract = Update, next
	return plan
}

type builder struct {
	*Input
	placed   map[types.UID]*Placed
	rows     []entryRow
	removed  bool // an entry is omitted
	reads    []types.UID
	tooLarge []types.UID
}

// entryRow is the new version of an entry. If it differs from before, its Changed is 0.
type entryRow struct {
	entry  Entry
	before *Entry
	since  int64 // the maximum of the share's and the release's
	// omitted is set if the entry does not fit.
	omitted bool
}

// takeOver processes the entries of the present contract.
func (b *builder) takeOver() {
	for i := range b.View.Contract.Entries {
		e := &b.View.Contract.Entries[i]
		p := b.placed[e.UID]
		switch {
		case p == nil: // it is unknown whether the resource is gone: the cache may be behind
			b.reads = append(b.reads, e.UID)
			b.keep(e)
		case p.Gone:
			b.removed = true
		case e.Decision > p.Status.Decision:
			b.keep(e) // it was built from a later decision
		default:
			b.renew(p, e)
		}
	}
}

func (b *builder) keep(e *Entry) { b.rows = append(b.rows, entryRow{entry: *e, before: e}) }

// add adds entries for resources that have none.
func (b *builder) add(own bool) {
	for i := range b.Placed {
		p := &b.Placed[i]
		if p.Gone || own && b.View.Contract.Entry(p.UID) != nil {
			continue
		}
		if _, _, named := names(&p.Status, b.Incarnation); !named {
			continue
		}
		if !p.Live {
			b.reads = append(b.reads, p.UID)
			continue
		}
		b.renew(p, nil)
	}
}

// names returns the share and the release of an incarnation in a decision, which may be nil, and
// whether there is either.
func names(s *placement.Status, incarnation string) (owned, released *placement.Placement, named bool) {
	for i := range s.Placement {
		if s.Placement[i].Incarnation == incarnation {
			owned, named = &s.Placement[i], true
		}
	}
	for i := range s.Releasing {
		if s.Releasing[i].Incarnation == incarnation {
			released, named = &s.Releasing[i], true
		}
	}
	return owned, released, named
}

// renew builds the entry of a resource from its decision. The argument before is the present entry
// or nil.
func (b *builder) renew(p *Placed, before *Entry) {
	owned, released, named := names(&p.Status, b.Incarnation)
	if named && b.stays(p, before, owned, released) {
		b.keep(before)
		return
	}
	if p.Status.Check() != nil { // a malformed status must not take anything away
		if before != nil {
			b.keep(before)
		}
		return
	}
	if !named {
		b.removed = true
		return
	}
	b.rows = append(b.rows, b.row(p, before, owned, released))
}

// row builds the entry of a resource from a share and a release, which may be nil.
func (b *builder) row(p *Placed, before *Entry, owned, released *placement.Placement) entryRow {
	next := Entry{Reference: p.Reference, Generation: p.Generation, Decision: p.Status.Decision, Of: p.Of, Payload: compact(p.Payload)}
	next.Replicas = b.replicas(p, before, owned, released)
	if before != nil {
		next.unknown = before.unknown
	}
	r := entryRow{entry: next, before: before, since: max(sinceOf(owned), sinceOf(released))}
	r.settle()
	return r
}

// stays reports whether an entry would be the same again. It saves most of the time of a build, in
// which few entries change.
func (b *builder) stays(p *Placed, before *Entry, owned, released *placement.Placement) bool {
	if before == nil || b.Overlap && released != nil || before.Decision < max(sinceOf(owned), sinceOf(released)) {
		return false
	}
	if before.Reference != p.Reference || before.Generation != p.Generation || before.Of != p.Of || !bytes.Equal(before.Payload, p.Payload) {
		return false
	}
	indexes := set(owned)
	for _, index := range indexes {
		if _, listed := before.Lists(index); !listed {
			return false
		}
	}
	return len(indexes) == len(before.Replicas)
}

// settle restores the previous entry if nothing changes for the pod and the previous entry was not
// built from a decision older than the last change of the share.
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

// isSame reports whether two entries are equivalent for the pod.
func isSame(a, b *Entry) bool {
	return a.Reference == b.Reference && a.Generation == b.Generation && a.Of == b.Of &&
		maps.Equal(a.Replicas, b.Replicas) && bytes.Equal(a.Payload, b.Payload)
}

// replicas returns the indexes that an entry lists, with their epochs.
func (b *builder) replicas(p *Placed, before *Entry, owned, released *placement.Placement) map[int32]int64 {
	listed, held := map[int32]int64{}, releasing(&p.Status)
	for _, index := range set(owned) {
		epoch, ok := before.Lists(index)
		switch {
		case ok:
			listed[index] = epoch
		case b.Overlap || !held[index]:
			listed[index] = p.Status.Decision
		}
	}
	if !b.Overlap || released == nil {
		return listed
	}
	waits := b.waiting(p)
	for _, index := range set(released) {
		epoch, ok := before.Lists(index)
		if _, own := listed[index]; ok && !own && waits[index] {
			listed[index] = epoch
		}
	}
	return listed
}

// waiting returns the indexes that have an owner that does not work on them yet.
func (b *builder) waiting(p *Placed) map[int32]bool {
	waits := map[int32]bool{}
	for i := range p.Status.Placement {
		share := &p.Status.Placement[i]
		var works schedule.Set
		if v, ok := b.Owners(share.Incarnation); ok {
			works = v.Working(p.UID, share)
		}
		for _, index := range set(share) {
			if _, has := waits[index]; !has { // of two shares with one index, the first one owns it
				waits[index] = !works.Has(index)
			}
		}
	}
	return waits
}

// set returns the indexes of a share of a checked status. The share may be nil.
func set(p *placement.Placement) schedule.Set {
	if p == nil {
		return nil
	}
	indexes, _ := p.Set()
	return indexes
}

// releasing returns the indexes that any incarnation is still releasing.
func releasing(s *placement.Status) map[int32]bool {
	if len(s.Releasing) == 0 {
		return nil
	}
	all := map[int32]bool{}
	for i := range s.Releasing {
		for _, index := range set(&s.Releasing[i]) {
			all[index] = true
		}
	}
	return all
}
