// Package contract implements the protocol that hands virtual replicas over between pods: the
// stored formats and the decisions.
//
// A contract specifies what one incarnation of a pod may work on. It is stored in a ConfigMap with
// the name of the pod:
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
// [Decide], [Release] and [Build] are for the controller; [Accepts], [Apply] and [Acknowledge] are
// for the pod. They are pure. Each result must be written in one request, conditional on the
// resourceVersion of the object from which it was computed. No function modifies its arguments, and
// all are safe for concurrent use.
package contract
