// Package simulation explores the labels of a node under all kinds of faults, at the granularity of
// single API calls.
//
// There is one node name; a user who creates, edits, heartbeats and deletes the node; two to four
// watchers and two processors without locks, each with its own stale caches. Watchers are
// arbitrarily slow: a list shows the Node at some moment between the request and the answer, events
// are processed while a write is under way, a write of a crashed watcher may take effect later,
// answers to other watchers may take any time, and Leases of live watchers are taken over. There
// are gaps in watches, tombstones, crashes, restarts, lives of a few steps, long stalls, lost
// answers and replays. Records are removed at any time, as by kubectl nodekeeper forget, and
// malformed objects take the names of transactions that are not stored yet. An admission policy
// that comes and goes refuses labels, and may name a wrong one. Different machines take the name,
// and report their identity late or not at all. A tool applies a label server-side, or removes it.
// An earlier record takes the place of a later one, as from a backup, and the API server may no
// longer record then who has set the marker. The datastore may be replaced, so that revisions start
// again; the promises of an outage hold then.
//
// The simulation runs the real code of the decision ([nodekeeper.dev/internal/preserve.Decide]) and
// of watchers: their handling of events ([nodekeeper.dev/internal/watcher.Observer],
// [nodekeeper.dev/internal/watcher.Outbox]), their answers to others
// ([nodekeeper.dev/internal/watcher/barrier.Question.Answer]), and their check of records
// ([nodekeeper.dev/internal/preserve.Applied]). The API server is in memory, with resourceVersions,
// UIDs, preconditions and finalizers. A ghost keeps the expected labels. The promises depend on
// the variant:
//
//   - steady: at any time there is a watcher that has missed nothing since it listed the Nodes and
//     asked the others. It is always the same, or watchers take turns. Nothing is lost.
//   - outage: all watchers miss events and are down, possibly at the same time. A node gets labels
//     that its last incarnation had, and none older than its stored labels.
//   - protected: like outage, but Nodes have the finalizer that waits for their labels to be stored.
//     Nothing is lost. If Nodes are also deleted before they have the finalizer, they have only the
//     promises of outage.
//
// After the removal of a record no earlier event has any effect. An existing node keeps its labels,
// and an absent node becomes new. A decision that is made during the removal may still use the
// removed record: a restore then counts as done before the removal, and the last labels of a node
// that ends at that moment may be lost.
//
// A run is a function of a list of bytes, its choices, which a seed determines. The first choices
// determine the parties and the probabilities of faults, the others who gets the next turn. A
// failure is shrunk by omitting bytes, and printed as a trace.
//
// Mutants show that the simulation can fail. A mutant is the real system with one broken rule. Each
// is exposed by random schedules, by random schedules with narrow settings, or by a script that
// drives the actors through one schedule.
package simulation
