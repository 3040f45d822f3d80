// Package robustness runs the built programs against a real API server, injects all kinds of
// faults, and then checks every numbered promise of docs/design.md against the recorded history.
//
// A seed determines a run: a [scenario], users who create, edit and delete nodes, and several
// concurrent faults, each with its own small type. etcd is never compacted, so the complete history
// is available at the end, across all restarts of the servers: each write of a Node, a record and a
// transaction. The history is replayed as a stream; before each write is applied, every promise
// checks it against the state before the write.
//
//	make robustness PRODUCT=keeper SEED=7 SEEDS=1 DURATION=60s
//
// The promises depend on the watchers that run: a label that no watcher saw is lost. So a scenario
// declares when the watchers were blind. For these times the ghost, which computes the labels that
// the next incarnation must get, also accepts older ones, down to the recorded ones.
package robustness
