// Package barrier makes watchers wait for each other.
//
// A watcher that lists the Nodes, at its start or after a gap in its watch, draws conclusions: this
// node has ended, that one has returned. Another watcher may have observed the end, with later
// labels, and not stored it yet. So every event carries the number of the list on which it builds,
// and is stored only after every other live watcher has stored everything that it observed of that
// node up to that list. A later list does not replace a barrier that has not passed: events observed
// before it keep their older one. If two watchers wait for each other, the one with the earlier
// list therefore never waits for an event that the other holds back.
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
//	    # Answers that leave out nodes whose events this watcher cannot store.
//	    nodekeeper.dev/barrier-held: '{"held":["node-1"],"answers":{"watcher-v8bz":{"9":2}}}'
//
// There are two positive answers, see [Answer]. A watcher that has the same incarnations as the
// list, and is not behind any Node in it, can answer [Alike] at once. That is enough for
// conclusions from the list. It may not have seen an incarnation that came and went before the
// list, so events observed after the list wait until the other watchers have reached it ([Passed]),
// which the waiting event itself causes.
//
// An answer leaves out up to 16 nodes whose events wait for longer than a second, for example
// because something else has the name of a transaction. The watcher that asks holds back these
// nodes only. If there are more, it waits. A former release does not read these answers, so it waits
// for an answer that leaves out nothing.
//
// stream.go follows the lists and the watch of Nodes, question.go has the questions and their
// answers, progress.go reads and writes the answers, and barrier.go exchanges both.
package barrier
