// Package ring names the rings of nodekeeper's services. Package shardlease does the rest.
package ring

// DefaultNamespace is where the Leases of the replicas are: with the programs, and not with what
// these keep. Who may write a Lease there says who belongs to the ring.
const DefaultNamespace = "nodekeeper-system"

// Label marks the Lease of a replica; its value is the service. List them by
// kubectl get leases -L nodekeeper.dev/ring.
const Label = "nodekeeper.dev/ring"
