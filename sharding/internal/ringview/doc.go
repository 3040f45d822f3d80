// Package ringview reads the rings of the sharder and explains them: which shards a ring has, and
// which shard owns an object and why.
//
// It only reads, always from the API server and not from a cache: ClusterRings, the Leases of
// shards, and the metadata of objects and Namespaces. Several reads are not a snapshot: a change
// between them may show in one and not in another. Package place computes where an object belongs,
// and package handover what the sharder does about it.
//
// cluster.go reads, ring.go has one ring, owner.go the owners of an object, and explain.go the
// reasons.
package ringview
