package contract

import "slices"

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

// limit reduces the contract to the maximum size: first, entries that have grown keep their former
// payload, then new entries and indexes are omitted. Removals always apply.
func (b *builder) limit(c Contract) {
	most := b.Most
	if most == 0 {
		most = MaxBytes
	}
	if b.bound(&c) <= most {
		return
	}
	size := len(c.Encode()) + len("18446744073709551615")
	for i := range b.rows {
		size += b.rows[i].size()
	}
	for i := range b.rows {
		r := &b.rows[i]
		if size <= most {
			return
		}
		if r.before == nil || len(r.entry.Payload) <= len(r.before.Payload) {
			continue
		}
		size -= r.size()
		r.entry.Payload, r.entry.Generation = r.before.Payload, r.before.Generation
		r.settle()
		size += r.size()
		b.tooLarge = append(b.tooLarge, r.entry.UID)
	}
	for i := len(b.rows) - 1; i >= 0 && size > most; i-- {
		r := &b.rows[i]
		before := r.size()
		if r.before == nil {
			b.tooLarge = append(b.tooLarge, r.entry.UID)
			b.rows = slices.Delete(b.rows, i, i+1)
			size -= before
			continue
		}
		for index := range r.entry.Replicas {
			if _, listed := r.before.Lists(index); !listed {
				delete(r.entry.Replicas, index)
			}
		}
		if r.size() < before {
			r.settle()
			size += r.size() - before
			b.tooLarge = append(b.tooLarge, r.entry.UID)
		}
	}
	slices.Sort(b.tooLarge)
	b.tooLarge = slices.Compact(b.tooLarge)
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
	n := r.entry
	n.Changed = int64(^uint64(0) >> 1) // an upper bound, as it is not set yet
	return len(n.append(nil)) + len(",")
}
