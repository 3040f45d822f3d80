// Package record is the saved labels of one node and their ConfigMap form. It is pure.
//
// A record is a ConfigMap that is named as the node:
//
//	apiVersion: v1
//	kind: ConfigMap
//	metadata:
//	  name: node-1
//	  namespace: node-metadata
//	  labels:
//	    app.kubernetes.io/managed-by: nodekeeper
//	  annotations:
//	    nodekeeper.dev/source-uid: 0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1
//	    nodekeeper.dev/restored-uid: 41f0fb0a-6d24-43f1-9d29-2ed7a4b5b2f4
//	    nodekeeper.dev/restored-rv: "2650"
//	    nodekeeper.dev/ended: "true"
//	    nodekeeper.dev/machine-labels: kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os
//	    nodekeeper.dev/machine-labels-rv: "2650"
//	    nodekeeper.dev/overruled-labels: example.com/pool
//	    nodekeeper.dev/saved-at: "2026-11-21T03:14:15Z"
//	data:
//	  labels_restored: "2571"
//	  rack: r7
//	  example.com---SLASH---team: blue
//
// data.labels_restored is the revision: the resourceVersion of the Node at which the labels were
// captured. source-uid is the incarnation that they came from; restored-uid and restored-rv are the
// incarnation they were last put onto, and that Node's resourceVersion when it was done. ended is
// set when the end of that incarnation is on record. machine-labels are the keys that only agents
// had set, unclear-labels those of which nobody knows who had set them, and overruled-labels those
// that agents had set and a person has changed or removed. They count if machine-labels-rv is
// restored-rv or, without that, the revision.
//
// Where a record is removed, a floor takes its place: a ConfigMap without data, so that no event
// from before the removal has any effect, however late it is recorded:
//
//	metadata:
//	  name: node-1
//	  labels:
//	    app.kubernetes.io/managed-by: nodekeeper
//	  annotations:
//	    nodekeeper.dev/forgotten: "2801"
//	    nodekeeper.dev/saved-at: "2026-11-21T03:14:15Z"
package record
