// Package nodelock is the per-node lock that processors take before they work on a node's queue.
//
// The lock is a Lease in the transaction namespace, named as the node, and
// gone when it is not held:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: node-1
//	  namespace: node-metadata-transactions
//	spec:
//	  holderIdentity: processor-7c9d
//	  leaseDurationSeconds: 5
//	  acquireTime: "2026-11-21T03:14:15.000000Z"
//	  renewTime: "2026-11-21T03:14:16.000000Z"
//
// It saves wasted work and keeps order cheap. It does not protect data: a Lease
// is no fence, and a holder that was stopped for longer than a lease duration
// may go on beside the next one. Every write under the lock has its own precondition.
package nodelock
