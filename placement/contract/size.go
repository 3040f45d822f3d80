package contract

import (
	"cmp"
	"slices"
)

// MaxBytes is the maximum size of a contract. It leaves room for metadata below the API server's
// limit.
const MaxBytes = 900 << 10

// BytesPerIndex is the maximum size of an index with its epoch.
const BytesPerIndex = len(`"2147483647":9223372036854775807,`)

// Bytes returns an upper bound for the size of an entry that lists up to most indexes. For the
// scheduled item, use it without indexes as Bytes, and [BytesPerIndex] as EachBytes. An item larger
// than [MaxBytes] is never placed.
func (p *Placed) Bytes(most int32) int {
	const number = int64(^uint64(0) >> 1)
	e := Entry{Reference: p.Reference, Generation: number, Decision: number, Changed: number, Of: p.Of, Payload: p.Payload}
	return len(e.append(nil)) + len(",") + int(most)*BytesPerIndex
}

// limit reduces the contract to the maximum size: first, new entries that do not even fit into an
// empty contract are omitted, then entries that have grown keep their former payload, and then new
// entries and indexes are omitted. Of each, the largest come first. Removals always apply.
func (b *builder) limit(c Contract) {
	most := b.Most
	if most == 0 {
		most = MaxBytes
	}
	if b.bound(&c) <= most {
		return
	}
	empty := len(c.Encode()) + len("18446744073709551615")
	size := empty
	for i := range b.rows {
		size += b.rows[i].size()
	}
	size = b.reduce(size, most, func(r *entryRow) entryRow {
		less := *r
		less.omitted = r.before == nil && empty+r.size() > most
		return less
	})
	size = b.reduce(size, most, (*entryRow).withFormerPayload)
	b.reduce(size, most, (*entryRow).withoutNew)
	slices.Sort(b.tooLarge)
	b.tooLarge = slices.Compact(b.tooLarge)
}

// cut is a smaller version of the row at an index.
type cut struct {
	at    int
	less  entryRow
	saves int
}

// reduce makes rows smaller until the contract has at most the maximum size, and returns its size.
// It begins with those that save most, so that one large resource does not keep out many small ones.
func (b *builder) reduce(size, most int, smaller func(*entryRow) entryRow) int {
	if size <= most {
		return size
	}
	var cuts []cut
	for i := range b.rows {
		r := &b.rows[i]
		less := smaller(r)
		if saves := r.size() - less.size(); saves > 0 {
			cuts = append(cuts, cut{i, less, saves})
		}
	}
	slices.SortFunc(cuts, func(x, y cut) int {
		return cmp.Or(cmp.Compare(y.saves, x.saves), cmp.Compare(y.less.entry.UID, x.less.entry.UID))
	})
	for _, c := range cuts {
		if size <= most {
			break
		}
		b.rows[c.at] = c.less
		size -= c.saves
		b.tooLarge = append(b.tooLarge, c.less.entry.UID)
	}
	b.rows = slices.DeleteFunc(b.rows, func(r entryRow) bool { return r.omitted })
	return size
}

// withFormerPayload returns the row with the payload of the present entry, if that is smaller.
func (r *entryRow) withFormerPayload() entryRow {
	less := *r
	if r.before != nil && len(r.before.Payload) < len(r.entry.Payload) {
		less.entry.Payload, less.entry.Generation = r.before.Payload, r.before.Generation
		less.settle()
	}
	return less
}

// withoutNew returns the row without indexes that the present entry does not list. Without a
// present entry, the row is omitted.
func (r *entryRow) withoutNew() entryRow {
	less := *r
	less.omitted = r.before == nil
	if less.omitted {
		return less
	}
	less.entry.Replicas = map[int32]int64{}
	for index, epoch := range r.entry.Replicas {
		if _, listed := r.before.Lists(index); listed {
			less.entry.Replicas[index] = epoch
		}
	}
	less.settle()
	return less
}

// bound returns an upper bound for the size that is cheap to compute.
func (b *builder) bound(c *Contract) int {
	const perCharacter, perEntry = len(`\u0000`), 300
	size := perEntry + perCharacter*len(c.Incarnation) + c.unknown.bound()
	for i := range b.rows {
		e := &b.rows[i].entry
		size += perEntry + len(e.Payload) + len(e.Replicas)*BytesPerIndex + e.unknown.bound() +
			perCharacter*(len(e.UID)+len(e.APIVersion)+len(e.Kind)+len(e.Namespace)+len(e.Name))
	}
	return size
}

func (f fields) bound() (size int) {
	for key, value := range f {
		size += len(`\u0000`)*len(key) + len(value) + len(`"":,`)
	}
	return size
}

func (r *entryRow) size() int {
	if r.omitted {
		return 0
	}
	n := r.entry
	n.Changed = int64(^uint64(0) >> 1) // an upper bound, as it is not set yet
	return len(n.append(nil)) + len(",")
}
