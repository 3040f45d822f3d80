// Package processor drains the queues of nodes: it takes the lock of a node that is due, applies
// the node's transactions in order, and removes each one when it has had its effect.
//
// Any number of processors may work on the same node at once: the lock only saves wasted work.
//
// processor.go is the controller, events.go what enqueues a node, drain.go the work on one node, and
// stock.go the metrics that are computed from the cache.
package processor
