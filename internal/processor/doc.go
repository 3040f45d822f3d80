// Package processor applies transactions: it takes a node's lock, drains the
// node's queue oldest first, and for each transaction writes what
// [nodekeeper.dev/internal/preserve.Decide] decides into the record or onto the Node.
//
// A transaction is removed only when its effect is known to be stored, or when
// a fresh read has shown that it has none. Every write carries a precondition, so any number of
// processors may work on the same node at once; the lock only saves them the trouble.
//
// processor.go is the loop, apply.go one transaction, store.go what is read
// and written for it; protect.go keeps Nodes until their last labels are stored; malformed.go marks what is
// no transaction, retention.go removes the records of nodes that stay away. metrics.go, stock.go and inform.go tell people.
package processor
