// Package ringview reads the rings of the sharder, and says what they mean: which shards a ring has, and
// which shard has an object and why.
//
// It only reads, always from the API server itself: ClusterRings, the Leases of shards, the metadata of
// objects and of Namespaces. Several reads are no snapshot: what happens between them may show in one and
// not in another. It decides nothing by itself: package place says where an object belongs, and package
// handover says what the sharder does about it.
//
// cluster.go is the reading, ring.go all of one ring, owner.go who has an object, and explain.go why.
package ringview
