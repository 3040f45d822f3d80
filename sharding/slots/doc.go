// Package slots assigns keys to shards by a table of 1,024 slots: a key has one slot forever, and
// the table says which shard has the slot now. When a shard joins or leaves, only the slots that must
// move do.
//
// Everything here is pure, and safe for concurrent use as long as nobody changes a table. An
// expression of the Common Expression Language computes the same slots inside the API server, so
// [Slot] must never change.
package slots
