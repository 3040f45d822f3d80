// Package record defines the saved labels of one node and their ConfigMap form. It is pure.
//
// A record is a ConfigMap with the name of the node:
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
//	    nodekeeper.dev/ended: "2026-11-21T03:14:00Z"
//	    nodekeeper.dev/machine-labels: kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os
//	    nodekeeper.dev/machine-labels-rv: "2650"
//	    nodekeeper.dev/overruled-labels: example.com/pool
//	    nodekeeper.dev/label-owners: '[{"manager":"kubectl-label","operation":"Update","keys":"rack"}]'
//	    nodekeeper.dev/saved-at: "2026-11-21T03:14:15Z"
//	data:
//	  labels_restored: "2571"
//	  rack: r7
//	  example.com---SLASH---team: blue
//
// data.labels_restored is the revision: the resourceVersion of the Node at which the labels were
// captured. source-uid is the incarnation that they came from; restored-uid and restored-rv are the
// incarnation that they were last restored onto, and that Node's resourceVersion after the restore.
// ended is when that incarnation ended, or true, once its end is recorded. machine-labels are the
// keys that only agents had set, unclear-labels the keys whose setter is unknown, and
// overruled-labels the keys that agents had set and a user has changed or removed. They are valid
// if machine-labels-rv equals restored-rv or, if that is absent, the revision. label-owners are the
// field managers of the labels that are not the machine's, so that a restore can give them back.
//
// When a record is removed, it is replaced by a floor: a ConfigMap without data, which keeps events
// from before the removal from having any effect, however late they are recorded:
//
//	metadata:
//	  name: node-1
//	  labels:
//	    app.kubernetes.io/managed-by: nodekeeper
//	  annotations:
//	    nodekeeper.dev/forgotten: "2801"
//	    nodekeeper.dev/saved-at: "2026-11-21T03:14:15Z"
package record
