// Package ring keeps the status of ClusterRings: it follows the Leases of the shards of each ring, makes
// those that are silent dead, and keeps the table that says which shard has which slot.
//
// [Shards] and [Next] are pure.
package ring
