// Package processor drains the queues of nodes: it takes the lock of a node that is due, applies
// the node's transactions in order, and removes each one when it has had its effect.
//
// Any number of processors may work on the same node at once: the lock only saves wasted work.
//
// processor.go is the controller, drain.go the work on one node. observer.go reports what was done,
// by logs, events and metrics; stock.go counts what is in the cache.
package processor
