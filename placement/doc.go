// Package placement has what a resource says about where its virtual replicas are: the types for its
// status, and the same as flat annotations for kinds that cannot embed them.
//
// A placeable is an object with N virtual replicas, known by their indexes 0 to N-1. Its status says which pod
// has which of them, and who may still work on those that were taken away:
//
//	status:
//	  placements:
//	  - {podName: worker-0, vreplicas: 2, incarnation: 41f0…/7c1e09b2, indexes: 0-1, since: 17}
//	  - {podName: worker-3, vreplicas: 1, incarnation: 9ab3…/03ab44e1, indexes: "2", since: 18}
//	  releasing:
//	  - {podName: worker-1, vreplicas: 1, incarnation: 77d1…/5e20c6b0, indexes: "2", since: 18}
//	  decision: 18
//
// Everything here is pure and safe for concurrent use.
package placement
