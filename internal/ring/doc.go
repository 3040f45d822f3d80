// Package ring names the rings of nodekeeper's services. Package shardlease does the rest.
package ring

// Label marks the Lease of a replica; its value is the service. List them by
// kubectl get leases -L nodekeeper.dev/ring.
const Label = "nodekeeper.dev/ring"
