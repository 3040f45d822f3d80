// Package preserve decides how one transaction changes a node's record and the node, its labels and
// its startup taint. It is pure: no I/O, no clock, no logging.
//
// [Decide] implements the decision table of docs/design.md, row by row. [Plan] folds it over a
// queue. Together they guarantee: a transaction may be applied many times, late, after newer ones
// and by many processors at once, and the result is as if each had been applied once, in order; and
// no label that a user edited after a restore is overwritten.
package preserve
