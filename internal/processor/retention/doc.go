// Package retention removes the records of nodes that stay away.
//
// A record is removed when its node has been seen to be away for the whole retention time. Only
// time in which processors looked counts: a node may come and go while every processor is stopped,
// and no trace of it is left. So each sweep notes in one Lease that somebody looked, and since when
// somebody has:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: nodekeeper-retention
//	  namespace: node-metadata
//	spec:
//	  acquireTime: "2026-11-21T03:14:15.000000Z"   # since when there has been no gap
//	  renewTime: "2026-11-24T17:04:15.000000Z"     # the latest look
//	  holderIdentity: processor-7c9f-x2m4t         # who looked
//
// After a gap every absence counts from then on. The same rule bounds what a wrong clock does: to a
// processor whose clock is ahead by more than the gap, and to the others after it, the note shows a
// gap. They keep records for longer then, never shorter.
//
// Limits: a node that is there only within a gap of three sweeps, while no watcher runs, is not
// noticed; its record counts on.
package retention
