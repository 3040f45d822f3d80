// Package assignment assigns the objects of rings to shards and moves them when the shards or the
// table change. Package handover decides what to do with an object. This package finds the objects
// that need a decision, without keeping all objects in memory, and writes the result.
//
// For each ring and resource, one watch covers unassigned and orphaned objects, which no live shard
// has, and another one covers objects in a hand-over. Both are empty when the ring is balanced. A
// resync reads all objects once and keeps only the ones that must move.
package assignment
