// Package processor drains the queues of nodes: it takes the lock of a node that is due, applies
// the node's transactions in order, and removes each one once it has had its effect.
//
// Any number of processors may work on the same node at once: the lock only avoids duplicate work.
//
// processor.go contains the controller, events.go enqueues nodes, drain.go works on one node, and
// stock.go computes metrics from the cache. In the folders: schedule decides when a node is due,
// apply executes a plan; protection, retention and quarantine are controllers of their own, and job
// and telemetry are shared by all of them.
package processor
