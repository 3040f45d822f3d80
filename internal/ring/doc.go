// Package ring maintains the membership of a group of replicas that shard keys. Membership is a
// preference, never a guarantee: two members may see different groups for a while, so a place only
// determines which member goes first.
//
// Each [Member] keeps a Lease by package shardlease, watches its peers' Leases, and removes dead
// members' Leases. Its annotation <group label>-standby is "true" while the member serves no keys.
// A [View] is pure.
package ring

// DefaultNamespace is the namespace of the replicas' Leases, which is the namespace of the programs
// and not of their data. Anyone who may write a Lease there can join the ring.
const DefaultNamespace = "nodekeeper-system"

// Label marks the Lease of a replica of nodekeeper; its value is the service. List them by kubectl
// get leases -L nodekeeper.dev/ring.
const Label = "nodekeeper.dev/ring"
