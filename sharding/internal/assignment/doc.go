// Package assignment gives the objects of rings to shards, and moves them when the shards or the table
// change. Package handover decides what to do about an object. This package finds the objects that need it,
// without keeping all of them in memory, and writes the result.
//
// Per ring and resource a watch shows the objects that no live shard has, the exceptions, and another one
// those that are in a hand-over. Both show nothing at rest. A pass reads all objects once, and keeps those
// that must move.
package assignment
