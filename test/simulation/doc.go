// Package simulation explores what a node's labels become when everything that
// can go wrong does, at the granularity of single API calls.
//
// One node name; a user who creates, edits, heartbeats and deletes it; two watchers and two processors
// without locks, each with its own stale view; watch gaps, crashes, restarts, lost answers and
// replays. The decision ([nodekeeper.dev/internal/preserve.Decide]) and what a watcher makes
// of an event ([nodekeeper.dev/internal/watcher.Observer]) are the real ones; the API server is in memory, with
// resourceVersions, uids and preconditions. A ghost keeps what the labels ought to be.
//
// A run is a function of a list of bytes, its choices. A seed gives the
// bytes; a failure is shrunk by leaving bytes out, and printed as a trace.
package simulation
