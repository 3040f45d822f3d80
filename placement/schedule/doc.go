// Package schedule decides how many virtual replicas of each item run on which pod of a pool, and
// which numbers they have.
//
// Everything here is pure and deterministic: no I/O, no clock, no randomness. The order of the
// input does not matter, no argument is changed, and every function is safe for concurrent use.
//
// [Schedule] places what is missing and leaves everything else where it is: a lost pod moves exactly its
// virtual replicas, and a new pod moves none. [Rebalance] moves single ones to even out the loads.
// [WantPods] tells how many pods there should be. [Number] deals out indexes.
package schedule
