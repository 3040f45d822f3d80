// Package nodelock implements the per-node lock that a processor takes before it works on a node's
// queue.
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
// The lock saves wasted work and makes ordering cheap. It does not protect data: a Lease is not a
// fence, and a holder that was suspended for longer than a lease duration may run in parallel with
// the next one. Every write under the lock has its own precondition.
//
// # When a lock is free
//
// A holder renews its lock every second. If it crashes, the lock is free once it has not been
// renewed for its duration. A process can establish that in two ways:
//
//   - It has seen the Lease unchanged for the duration, by its own clock.
//
// - The cluster's times: the last write of the Lease was more than the duration ago. The newest
// time in its managedFields, which the API server sets, has whole seconds; the renew time, which
// the holder sets, provides the fraction.
//
// The second way lets a process that has just started inherit the age of a lock. Without it,
// processors that are replaced faster than the duration would all start the wait again, and none
// would ever take the lock of a crashed one. A live holder keeps its lock as long as the clocks of
// API server and processor agree within two seconds and its renewals are answered within one.
// Otherwise two processors may briefly work on one node, which wastes work but loses nothing. A
// holder whose renewals fail stops up to four seconds after its last one.
//
// # Foreign Leases
//
// Only a Lease with the label is a lock. Locks of versions before the label are recognized by their
// form, see [IsLock], and get the label when they are taken over. All other Leases in the namespace
// are foreign and are never written, deleted or counted. If one has the name of a node, that node
// has no lock: [Locker.Do] works on it without one, because a node that waits forever is worse than
// two processors working on it.
package nodelock
