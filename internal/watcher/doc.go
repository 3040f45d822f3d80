// Package watcher turns the events of Nodes into transactions.
//
// It promises, for every event that its watch delivers: the transactions of
// one node are stored in the order of the events, and the next one is not written
// before the previous one is known to be stored; a write that fails is tried again
// until it succeeds; an event that was missed while the watch was interrupted is
// recorded from the last state that was seen. Any number of watchers may run.
//
// A watcher that has listed the nodes anew, at its start or after a gap in its watch,
// writes nothing for a while: see [Listings].
//
// observe.go holds what an event says, catchup.go what a start finds changed,
// both pure; watcher.go is the loop around them.
package watcher
