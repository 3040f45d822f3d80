// Package ring shares nodes out among replicas by consistent hashing. It is a preference and never a guarantee: two replicas may
// see different rings for a while, so whoever asks it may only ask who is to go first.
//
// Each replica keeps a Lease that is named as the replica and labelled with its ring:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: watcher-7c9d
//	  namespace: node-metadata
//	  labels:
//	    nodekeeper.dev/ring: watcher
//	spec:
//	  holderIdentity: watcher-7c9d    # itself; "" after it has ended, another one after it was taken over
//	  leaseDurationSeconds: 15
//	  renewTime: "2026-11-21T03:14:15.000000Z"
//
// [Ring] and [StateOf] are pure. [Membership] keeps the Lease and watches those of the others.
package ring
