// Package ring keeps the status of ClusterRings: it follows the Leases of the shards of each ring,
// takes over the Leases of silent shards, and computes the table that maps slots to shards.
//
// [Shards] and [Next] are pure.
package ring
