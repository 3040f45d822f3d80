// Package simulation explores what a node's labels become when everything that
// can go wrong does, at the granularity of single API calls.
//
// One node name; a user who creates, edits, heartbeats and deletes it; two to four watchers and two
// processors without locks, each with its own stale caches. Watchers are arbitrarily slow: a list
// is of some moment between the request and the answer, events are taken in while a write is under
// way, a write of a watcher that has crashed takes effect later, answers to others take as long as
// they like, and Leases of the living are taken over. There are gaps in watches, tombstones,
// crashes, restarts, lives of a few steps, long stalls, lost answers and replays. Records are
// removed at any time, as by kubectl nodekeeper forget. The decision
// ([nodekeeper.dev/internal/preserve.Decide]), what a watcher makes of an event
// ([nodekeeper.dev/internal/watcher.Observer]), what it does with it
// ([nodekeeper.dev/internal/watcher.Outbox]), what it answers to others
// ([nodekeeper.dev/internal/watcher.Question.Answer]) and what it leaves out by a record
// ([nodekeeper.dev/internal/preserve.Applied]) are the real ones; the API server is in memory, with
// resourceVersions, uids, preconditions and finalizers. A ghost keeps what the labels ought to be.
// What is promised depends on the variant:
//
//   - steady: at any time there is a watcher that has missed nothing since it listed the Nodes, and asked the others then. It is always the
//     same, or they take turns. Nothing is lost.
//   - outage: all watchers miss events and are down, also at once. A node gets labels that its last incarnation had, none older
//     than what was stored of it.
//   - protected: as outage, but Nodes have the finalizer that waits for their labels to be stored. Nothing is lost.
//     Where Nodes are also deleted before they have the finalizer, what an outage leaves is promised of these.
//
// After the removal of a record no event from before has any effect. A node that is there keeps its
// labels, and one that is away is new. What is decided just while the record is removed may be
// decided by the record that is removed: a restore is as if it had come first, and the last labels
// of a node that ends in that moment may be lost.
//
// A run is a function of a list of bytes, its choices. A seed gives the bytes; they say first what
// there is in this run and how often, then who gets the next turn. A failure is shrunk by leaving
// bytes out, and printed as a trace.
//
// The simulation shows that it can fail: mutants are the real system with one rule broken, and each
// is found: by random schedules, by those of narrow settings, or by a script that drives the actors
// through one schedule.
package simulation
