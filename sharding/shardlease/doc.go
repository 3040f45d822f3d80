// Package shardlease keeps and watches the Leases that the replicas of a controller, its
// shards, renew to show that they are alive. There is one Lease per shard and no leader.
//
// Each shard keeps a Lease that has the shard's name and is labelled with its ring. With the label
// key example.com/ring:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: web-7c9d
//	  labels:
//	    example.com/ring: web
//	  annotations:
//	    example.com/version: v1.2.3      # any information that the shard publishes
//	spec:
//	  holderIdentity: web-7c9d           # the shard; "" after its shutdown, another holder after a takeover
//	  leaseDurationSeconds: 15
//	  renewTime: "2026-11-21T03:14:15.000000Z"
//
// A [Keeper] keeps such a Lease, a [Watch] follows the Leases of a ring, and [Sightings] measures,
// by this process's own clock, how long a Lease has not been renewed. [StateOf] derives the state
// of a shard; it is pure. [TakeOver] declares a silent shard dead, and [Remove] deletes its Lease.
package shardlease
