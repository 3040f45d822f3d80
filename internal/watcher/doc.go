// Package watcher turns the events of Nodes into transactions.
//
// It promises, for every event that its watch delivers: the transactions of one node are stored in
// the order of the events, and the next one is not written before the previous one is known to be
// stored. A write that fails is retried until it succeeds. An event that was missed while the watch
// was interrupted is recorded from the last state that was seen. Any number of watchers may run.
//
// # Barrier
//
// A watcher that lists the Nodes, at its start or after a gap in its watch, draws conclusions: this
// node has ended, that one has returned. Another watcher may have observed the end, with later
// labels, and not stored it yet. So everything that a watcher stores carries the number of the list
// on which it builds, and is stored only when every other live watcher has stored all that it
// observed up to that list. A later list replaces no barrier that has not passed: what was observed
// before it keeps its older one, so of two watchers that wait for each other, the one with the
// earlier list waits for nothing that the other still holds.
//
// Questions and answers are annotations of the members' Leases:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: watcher-7c9d
//	  annotations:
//	    # What it asks: one entry for each list whose barrier has not passed.
//	    nodekeeper.dev/barrier-asks: '[{"number":17,"list":"4711","newest":"4702","digest":"9b7c03fd51a2c4e8"}]'
//	    # What it answers: by the name of who asks, and the number of the question.
//	    nodekeeper.dev/barrier-answers: '{"watcher-x2vq":{"12":2}}'
//
// There are two answers, see [Answer]. A watcher that knows the same incarnations as the list, and
// is not behind any Node in it, can answer at once ([Alike]). That is enough for what was concluded
// from the list. It may not have seen an incarnation that came and went before the list, so what is
// observed after the list waits until the other watchers have reached it ([Passed]). The very event
// that waits lets them.
//
// # Files
//
// observe.go holds what an event says and catchup.go what a list finds changed, question.go and
// outbox.go what waits and for whom: these decide. stream.go follows the lists and the watch,
// handler.go takes their events, barrier.go asks and answers, gate.go leaves events to others,
// circuit.go bounds requests while everything is refused, and writer.go stores.
package watcher
