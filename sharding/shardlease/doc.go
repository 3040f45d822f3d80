// Package shardlease keeps and watches the Leases by which the replicas of a controller, its shards,
// tell each other and everybody else that they live: one Lease per shard, no leader.
//
// Each shard keeps a Lease that is named like the shard and labelled with its ring. With the label key
// example.com/ring:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: web-7c9d
//	  labels:
//	    example.com/ring: web
//	  annotations:
//	    example.com/version: v1.2.3      # whatever the shard tells of itself
//	spec:
//	  holderIdentity: web-7c9d           # itself; "" after its shutdown, another holder after a takeover
//	  leaseDurationSeconds: 15
//	  renewTime: "2026-11-21T03:14:15.000000Z"
//
// A [Keeper] keeps such a Lease, a [Watch] follows those of a ring, and [Sightings] measures by this
// process's own clock how long a Lease has not been renewed. [StateOf] says what follows from that. It
// is pure. [TakeOver] makes a silent shard dead, and [Remove] deletes what is left of it.
package shardlease
