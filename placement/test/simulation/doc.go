// Package simulation explores what becomes of virtual replicas when everything that can go wrong
// does, at the granularity of single API calls.
//
// There are two resources, three pods, and two controllers that both take themselves for the leader, each with
// its own stale caches. An author creates, scales, changes and deletes resources. Pods are slow; they
// crash, freeze, are cut off, and are replaced under the same name while the old process still runs. Workers
// do not start or do not stop. Somebody deletes contracts and Leases. Writes arrive late and in any
// order, and answers are lost. Clocks differ by up to 30 %.
//
// The decisions are the real ones: those of packages schedule, contract and ready. The API server is in memory,
// with resourceVersions, uids and preconditions. A ghost knows who really works on what, and checks the promises
// of placement/docs/design.md.
//
// A run is a function of a list of bytes, its choices. A seed gives the bytes. A failure is shrunk by
// leaving bytes out, and printed as a trace. Mutants, which are the real rules with one of them broken, show
// that the simulation can fail. Random choices hardly ever find some of them: for these there are stories, schedules
// that are written down step by step.
package simulation
