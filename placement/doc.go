// Package placement defines the types with which a resource records where its virtual replicas are
// placed, and an equivalent encoding as flat annotations for kinds that cannot embed these types.
//
// A placeable is an object with N virtual replicas, identified by the indexes 0 to N-1. Its status
// lists the pod of each index, and the pods that may still be working on indexes that were taken
// away:
//
//	status:
//	  placements:
//	  - {podName: worker-0, vreplicas: 2, incarnation: 41f0…/7c1e09b2, indexes: 0-1, since: 17}
//	  - {podName: worker-3, vreplicas: 1, incarnation: 9ab3…/03ab44e1, indexes: "2", since: 18}
//	  releasing:
//	  - {podName: worker-1, vreplicas: 1, incarnation: 77d1…/5e20c6b0, indexes: "2", since: 18}
//	  decision: 18
//
// The package is pure, and its functions are safe for concurrent use.
package placement
