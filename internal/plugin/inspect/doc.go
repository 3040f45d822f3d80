// Package inspect reads what nodekeeper has in a cluster, and says what it means: which state every
// node is in, what is pending, and what that will do.
//
// It only reads, always from the API server itself, with the rights of deploy/users/viewer.yaml.
// Several reads are no snapshot: what happens between them may show in one and not in another.
//
// cluster.go is the reading; node.go is all of one node, survey.go a summary of all nodes,
// forecast.go what transactions will do, replicas.go who is at work, waiting.go why transactions are
// not applied yet, by the events in warnings.go among others. What watches show goes into a [Board], and
// happening.go says what it means that an object has changed.
package inspect
