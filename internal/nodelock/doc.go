// Package nodelock is the per-node lock that a processor takes before it works on a node's queue.
//
// The lock is a Lease in the transaction namespace. It is named like the node and exists only while
// it is held:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: node-1
//	  namespace: node-metadata-transactions
//	  labels:
//	    nodekeeper.dev/lock: node
//	spec:
//	  holderIdentity: processor-7c9d
//	  leaseDurationSeconds: 5
//	  acquireTime: "2026-11-21T03:14:15.000000Z"
//	  renewTime: "2026-11-21T03:14:16.000000Z"
//
// The lock saves wasted work and keeps order cheap. It does not protect data: a Lease is no fence,
// and a holder that was suspended for longer than a lease duration may go on beside the next one.
// Every write under the lock has its own precondition.
//
// # When a lock is free
//
// A holder renews its lock every second. If it dies, the lock is free once nobody has renewed it
// for its duration. A process knows that in two ways, and either is enough:
//
//   - It has seen the Lease unchanged for the duration, by its own clock.
//   - The cluster says so: the last write of the Lease was more than the duration ago. The newest
//     time in its managedFields, which the API server sets, has whole seconds; the renew time, which
//     the holder sets, says when in that second.
//
// The second way lets a process that has just started inherit the age of what it finds. Without it,
// processors that are replaced faster than the duration would all wait from the start, and nobody
// would ever take a dead one's lock. A holder is not overtaken while the clocks of API server and
// processor agree within two seconds and its renewals are answered within one. If they are not, two
// processors may work on one node for a moment, which wastes work and loses nothing. A holder whose
// renewals fail stops up to four seconds after its last one.
//
// # Other people's Leases
//
// Only a Lease with the label is a lock. Locks of versions before the label are known by their
// form, see [IsLock]; one gets the label when it is taken over. Any other Lease in the namespace
// belongs to somebody else and is never written, deleted or counted. If one has the name of a node,
// that node has no lock: [Locker.Do] works on it without one, since a node that waits forever is
// worse than one that two processors work on.
package nodelock
