// Package ring keeps the membership of a group of replicas that share keys out among themselves. It is
// a preference and never a guarantee: two members may see different groups for a while, so the answer
// tells only which member goes first.
//
// Each [Member] keeps a Lease by package shardlease, watches those of its peers, and removes what dead
// ones left behind. Its annotation <group label>-standby is "true" while the member serves no keys. A
// [View] is pure.
package ring

// DefaultNamespace is where the Leases of nodekeeper's replicas are: with the programs, and not with
// what these keep. Who may write a Lease there says who belongs to the ring.
const DefaultNamespace = "nodekeeper-system"

// Label marks the Lease of a replica of nodekeeper; its value is the service. List them by
// kubectl get leases -L nodekeeper.dev/ring.
const Label = "nodekeeper.dev/ring"
