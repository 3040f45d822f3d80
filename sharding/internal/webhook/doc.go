// Package webhook makes the decisions of the admission policies in every sharder, for API servers
// without MutatingAdmissionPolicy: Kubernetes 1.30 to 1.35. Package policy contains the decision and
// writes the MutatingWebhookConfiguration of each ring.
//
// An answer never rejects a request, writes nothing, and depends only on the request and on the
// ring in the cache of the replica. While no replica answers in time, objects are created without a
// label, and the sharder assigns them when it observes them.
package webhook
