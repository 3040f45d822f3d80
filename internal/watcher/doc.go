// Package watcher turns the events of Nodes into transactions.
//
// It guarantees, for every event that its watch delivers: the transactions of one node are stored
// in the order of the events, and each is written only after the previous one is known to be
// stored. A failed write is retried until it succeeds. An event that was missed while the watch was
// interrupted is recorded from the last state that was seen. Any number of watchers may run.
//
// Conclusions from a list wait for other watchers, see package barrier.
//
// # Files
//
// observe.go turns events into transactions, catchup.go compares listed nodes with their records,
// and outbox.go decides which events wait; these make decisions only. handler.go receives the
// events of lists and the watch, turn.go leaves events to other watchers, circuit.go limits
// requests while all writes are rejected, and writer.go stores.
package watcher
