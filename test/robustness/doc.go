// Package robustness runs the built programs against a real API server, lets everything go wrong that can, and then
// checks every numbered promise of docs/design.md over the recorded history.
//
// A run is drawn from a seed: a [scenario], users who create, edit and delete nodes, and faults, several at a time, each a
// small type of its own. Nothing is ever compacted in etcd, so the whole history is there in the end, through every restart of
// the servers: each write of a Node, a record and a transaction. It is read as a stream and replayed; before each write is applied, every
// promise looks at it and at what was there before.
//
//	make robustness SEED=7 SEEDS=1 DURATION=60s
//
// What is promised depends on who could see: a label that no watcher saw is lost. So a scenario says when the
// watchers were blind, and in that time the ghost, which knows what the next incarnation is to get, allows what is older, down to what
// was recorded.
package robustness
