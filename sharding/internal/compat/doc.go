// Package compat lets shards of timebertt/kubernetes-controller-sharding run unmodified. A
// ControllerRing has no place for a table, so this package mirrors each one into a ClusterRing of
// the same name, and copies the mirror's shard counts and Ready condition into the status of the
// ControllerRing.
//
// A ControllerRing and its mirror:
//
//	apiVersion: sharding.timebertt.dev/v1alpha1
//	kind: ControllerRing
//	metadata: {name: checksum}
//	spec:
//	  resources: [{group: "", resource: secrets, controlledResources: [{group: "", resource: configmaps}]}]
//	---
//	apiVersion: sharding.nodekeeper.dev/v1alpha1
//	kind: ClusterRing
//	metadata: {name: checksum, ownerReferences: [the ControllerRing]}
//	spec:
//	  shards: {namespace: "*"}
//	  resources: [{group: "", resource: secrets, controlledResources: [{group: "", resource: configmaps}]}]
//	  fence: None
//
// Users may set the other fields of the mirror: how objects move, and the key of each resource.
package compat
