// Package preserve decides what one transaction does to a node's record and to
// the node. It is pure: no I/O, no clock, no logging.
//
// [Decide] is the decision table of docs/design.md, row by row. [Plan] folds it over a queue. Their
// promise: a transaction may be applied many times, late, after newer ones and by many processors
// at once, and the result is as if each had been applied once, in order; and no label that a user
// edited after a restore is overwritten.
package preserve
