// Package txn defines the transaction: one recorded event of one incarnation of a node. Pending
// transactions form a queue.
//
// A transaction is stored as an immutable ConfigMap, so that any number of
// watchers may record the same event and the result is one object:
//
//	apiVersion: v1
//	kind: ConfigMap
//	metadata:
//	  name: 35971be6e9bb024a895582fe0e42e04848a86da550aaef0fccbfba86f99f617d.2571
//	  namespace: node-metadata-transactions
//	  labels:
//	    nodekeeper.dev/type: deleted
//	    nodekeeper.dev/node-hash: 35971be6e9bb024a
//	  annotations:
//	    nodekeeper.dev/node: node-1
//	    nodekeeper.dev/uid: 0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1
//	    nodekeeper.dev/marker: "2214"
//	    nodekeeper.dev/machine-labels: kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os
//	    nodekeeper.dev/unclear-labels: rack
//	    nodekeeper.dev/withdrawn-labels: example.com/gone
//	    nodekeeper.dev/overruled-labels: example.com/pool
//	    nodekeeper.dev/edited-labels: example.com/gone,rack
//	    nodekeeper.dev/observed-at: "2026-11-21T03:14:15.926535Z"
//	immutable: true
//	data:
//	  type: deleted
//	  rack: r7
//	  example.com---SLASH---team: blue
//
// The name consists of the SHA-256 of the node's name and the resourceVersion of the Node in the
// recorded event. [Compare] orders the transactions of one node by that resourceVersion; the
// ConfigMap's own has no significance.
//
// The package is pure: [nodekeeper.dev/internal/queue] reads and writes the API server.
package txn
