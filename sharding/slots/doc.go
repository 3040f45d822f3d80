// Package slots assigns keys to shards through a table of 1,024 slots. The slot of a key never
// changes; the table maps each slot to its current shard. When a shard joins or leaves, only as
// many slots move as necessary.
//
// The package is pure. Everything in it is safe for concurrent use as long as no table is modified.
// A CEL expression computes the same slots inside the API server, so [Slot] must never change.
package slots
