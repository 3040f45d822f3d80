// Package contract has the protocol by which virtual replicas are handed from pod to pod: what is
// stored, and the decisions about it.
//
// A contract tells one incarnation of a pod what it may work on. It is a ConfigMap with the name of
// the pod:
//
//	data:
//	  contract: '{"incarnation":"41f0…/7c1e09b2","generation":43,"entries":[{"uid":"0b8a…",
//	    "apiVersion":"example.com/v1","kind":"Queue","namespace":"shop","name":"orders","generation":7,
//	    "decision":17,"changed":43,"of":12,"replicas":{"3":17,"7":12},"payload":{…}}]}'
//
// The pod answers with an annotation on its Lease:
//
//	placement.nodekeeper.dev/acknowledged: '{"incarnation":"41f0…/7c1e09b2","generation":43,
//	  "digest":"9b7c03fd51a2c4e8","stopping":{"0b8a…":[4]},"failing":{"77d1…":"dial tcp: refused"}}'
//
// [Decide], [Release] and [Build] are the controller's part, [Accepts], [Apply] and [Acknowledge] that
// of the pod. They are pure: each result is one write, which has the resourceVersion of what it was
// computed from as its precondition. No argument is changed, and everything is safe for concurrent
// use.
package contract
