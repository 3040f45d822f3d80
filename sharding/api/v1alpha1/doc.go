// Package v1alpha1 is the API of the sharder: the ClusterRing type, and the keys of the labels and
// annotations through which the sharder, the shards and the API server coordinate the assignment of
// objects.
//
// +kubebuilder:object:generate=true
// +groupName=sharding.nodekeeper.dev
package v1alpha1
