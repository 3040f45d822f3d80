// Package schedule decides how many virtual replicas of each item run on which pod of a pool, and
// which indexes they have.
//
// The package is pure and deterministic: it uses no I/O, clock or randomness. Results do not depend
// on the order of the input, arguments are not modified, and every function is safe for concurrent
// use.
//
// [Schedule] places missing virtual replicas and leaves all others where they are: a lost pod moves
// exactly its own virtual replicas, and a new pod moves none. [Rebalance] moves single virtual
// replicas to even out the loads. [WantPods] returns the number of pods to run. [Number] assigns
// indexes.
package schedule
