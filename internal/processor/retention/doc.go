// Package retention removes the records of nodes that stay away.
//
// A record is removed after its node has been observed to be away for the whole retention time.
// Time without a sweep does not count: while every processor is stopped, a node may come and go
// without a trace. So each sweep notes in a Lease when it ran, and since when there has been no gap
// between sweeps:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: nodekeeper-retention
//	  namespace: node-metadata
//	spec:
//	  acquireTime: "2026-11-21T03:14:15.000000Z"   # since when there has been no gap
//	  renewTime: "2026-11-24T17:04:15.000000Z"     # the latest sweep
//	  holderIdentity: processor-7c9f-x2m4t         # the processor that swept
//
// After a gap every absence period restarts. The same rule bounds the effect of a wrong clock: a
// processor whose clock is ahead by more than the gap finds a gap in the Lease, and so does the
// next processor after it. Records are then kept for longer, never for a shorter time.
//
// Limits: a node that is present only within a gap of less than three sweep periods, while no
// watcher runs, is not noticed, and its absence period continues.
package retention
