// Package simulation explores what a node's labels become when everything that
// can go wrong does, at the granularity of single API calls.
//
// One node name; a user who creates, edits, heartbeats and deletes it; two watchers and two processors
// without locks, each with its own stale caches; watchers that leave events to each other; gaps in watches, tombstones, crashes,
// restarts, long stalls, lost answers and replays. The decision ([nodekeeper.dev/internal/preserve.Decide]), what a watcher makes
// of an event ([nodekeeper.dev/internal/watcher.Observer]) and what it leaves out by a record ([nodekeeper.dev/internal/preserve.Applied])
// are the real ones; the API server is in memory, with resourceVersions, uids, preconditions and finalizers. A ghost keeps what the labels
// ought to be. What is promised depends on the variant:
//
//   - steady: one watcher runs all the time and misses nothing. Nothing is lost.
//   - outage: both watchers miss events and are down, also at once. A node gets labels that its last incarnation had, none older
//     than what was stored of it.
//   - protected: as outage, but Nodes have the finalizer that waits for their labels to be stored. Nothing is lost.
//
// A run is a function of a list of bytes, its choices. A seed gives the bytes; they say first what there is in this run
// and how often, then who gets the next turn. A failure is shrunk by leaving bytes out, and printed as a trace.
//
// The simulation shows that it can fail: mutants are the real system with one rule broken, and each is found.
package simulation
