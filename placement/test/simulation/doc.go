// Package simulation explores the behavior of placement under faults, at the granularity of single
// API calls.
//
// There are two resources, three pods, and two controllers that both consider themselves the
// leader, each with stale caches of its own. An author creates, scales, changes and deletes
// resources. Pods are slow; they crash, freeze, are cut off, and are replaced under the same name
// while the old process still runs. Processes release their Leases, for good or to join again. A
// StatefulSet rolls its pods, one after the other, and changes their number; a pod that does not
// end within its grace period is killed. In some schedules, Leases, contracts and resources have
// owners, and the garbage collector of Kubernetes deletes them, from stale caches, after their
// owners are gone. Leaders delete what is left of pods that have ended, and in some schedules they
// even out the load. Workers fail to start or to
// stop. Contracts and Leases are deleted. Writes arrive late and in any order, and responses are
// lost. Clock rates differ by up to 30 %. etcd is restored to an earlier state while all programs
// run on. In some schedules, agents keep their work when they cannot renew their Leases.
//
// The decisions are the real ones, from packages schedule, contract and ready. The API server is in
// memory, with resourceVersions, UIDs and preconditions. A ghost observes which incarnations
// actually work on which virtual replicas, and checks the promises of placement/docs/design.md.
// After a restore of etcd, it checks nothing that the restore excuses until nothing is left of the
// lost history; once all is calm, it checks everything.
//
// A run is a function of a list of bytes, its choices, which are generated from a seed. A failing
// list is shrunk by removing bytes and printed as a trace. Mutants, which are the real rules with
// one of them broken, show that the simulation detects violations. For mutants that random choices
// hardly ever detect there are stories, which are schedules that are written down step by step.
package simulation
