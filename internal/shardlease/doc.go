// Package shardlease keeps the membership of a group of replicas that share keys out among
// themselves: one Lease per replica, no leader. It is a preference and never a guarantee: two
// members may see different groups for a while, so the answer tells only which member goes first.
//
// Each member keeps a Lease that is named like the member and labelled with its group. With the
// label key example.com/ring:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: web-7c9d
//	  labels:
//	    example.com/ring: web
//	  annotations:
//	    example.com/ring-standby: "true" # only while the member serves no keys
//	    example.com/version: v1.2.3      # and whatever else the member tells of itself
//	spec:
//	  holderIdentity: web-7c9d           # itself; "" after its shutdown, another member after a takeover
//	  leaseDurationSeconds: 15
//	  renewTime: "2026-11-21T03:14:15.000000Z"
//
// [StateOf] and [View] are pure. [Sightings] measures by this process's own clock how long a Lease
// has been unchanged. [Member] keeps the Lease, watches those of its peers, and removes what dead
// ones left behind.
package shardlease
