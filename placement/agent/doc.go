// Package agent is the part of placement that runs in a pod: it joins a pool, follows the contract
// of its pod, runs one [Worker] for each virtual replica that the contract lists, and acknowledges.
// [RunFiles] hands the contract to another program instead.
//
// [Run] keeps a Lease with the name of the pod. Its holder is the incarnation, and its annotations
// are the pod's zone, capacity and acknowledgement:
//
//	apiVersion: coordination.k8s.io/v1
//	kind: Lease
//	metadata:
//	  name: worker-3
//	  labels: {placement.nodekeeper.dev/pool: worker}
//	  annotations:
//	    placement.nodekeeper.dev/zone: a
//	    placement.nodekeeper.dev/capacity: "50"
//	    placement.nodekeeper.dev/acknowledged: '{"incarnation":"41f0…/7c1e09b2-15s","generation":43,…}'
//	spec: {holderIdentity: 41f0…/7c1e09b2-15s, leaseDurationSeconds: 15}
//
// All Workers are canceled when the Lease has not been renewed for the renew deadline, which is two
// thirds of the lease duration. No other pod gets their work before twice the lease duration. Work
// that may be done twice can go on instead: see [Keep].
package agent
