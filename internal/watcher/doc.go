// Package watcher turns the events of Nodes into transactions.
//
// It guarantees, for every event that its watch delivers: the transactions of one node are stored
// in the order of the events, and each is written only after the previous one is known to be
// stored. A failed write is retried until it succeeds. An event that was missed while the watch was
// interrupted is recorded from the last state that was seen. Any number of watchers may run.
//
// # Barrier
//
// A watcher that lists the Nodes, at its start or after a gap in its watch, draws conclusions: this
// node has ended, that one has returned. Another watcher may have observed the end, with later
// labels, and not stored it yet. So every event carries the number of the list on which it builds,
// and is stored only after every other live watcher has stored everything that it observed up to
// that list. A later list does not replace a barrier that has not passed: events observed before it
// keep their older one. If two watchers wait for each other, the one with the earlier list
// therefore never waits for an event that the other holds back.
//
// Questions and answers are annotations of the members' Leases:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: watcher-7c9d
//	  annotations:
//	    # Questions: one entry for each list whose barrier has not passed.
//	    nodekeeper.dev/barrier-asks: '[{"number":17,"list":"4711","newest":"4702","digest":"9b7c03fd51a2c4e8"}]'
//	    # Answers: by the name of the asking member and the number of its question.
//	    nodekeeper.dev/barrier-answers: '{"watcher-x2vq":{"12":2}}'
//
// There are two positive answers, see [Answer]. A watcher that has the same incarnations as the
// list, and is not behind any Node in it, can answer [Alike] at once. That is enough for
// conclusions from the list. It may not have seen an incarnation that came and went before the
// list, so events observed after the list wait until the other watchers have reached it ([Passed]),
// which the waiting event itself causes.
//
// # Files
//
// observe.go turns events into transactions, catchup.go compares listed nodes with their records,
// and question.go and outbox.go decide which events wait for which watchers; these make decisions
// only. stream.go follows the lists and the watch, handler.go receives their events, barrier.go
// exchanges questions and answers, turn.go leaves events to other watchers, circuit.go limits
// requests while all writes are rejected, and writer.go stores.
package watcher
