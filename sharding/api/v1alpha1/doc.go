// Package v1alpha1 is the API of the sharder: ClusterRings, and the keys of the labels and
// annotations by which the sharder, the shards and the API server tell each other who has an object.
//
// +kubebuilder:object:generate=true
// +groupName=sharding.nodekeeper.dev
package v1alpha1
