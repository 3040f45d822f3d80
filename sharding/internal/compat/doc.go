// Package compat lets shards of timebertt/kubernetes-controller-sharding run unmodified: it mirrors
// each ControllerRing, which has no place for a table, into a ClusterRing of its name, and copies the
// numbers of shards and the condition Ready of this mirror into the status of the ControllerRing.
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
// People may set the other fields of the mirror: how objects move, and by which key they are shared out.
package compat
