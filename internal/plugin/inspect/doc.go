// Package inspect reads nodekeeper's objects in a cluster and interprets them: the states of nodes,
// the pending transactions, and their effects.
//
// It only reads, always from the API server and not from a cache, with the rights of
// deploy/users/viewer.yaml. Several reads are not a snapshot: a change between them may show in one
// and not in another.
//
// cluster.go reads; node.go has one node, survey.go a summary of all nodes, forecast.go the effects
// of transactions, replicas.go the replicas, and waiting.go the reasons why transactions are not
// applied yet, among them the events in warnings.go. A [Board] collects the results of watches, and
// happening.go interprets changes of objects.
package inspect
