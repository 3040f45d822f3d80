// Package queue is the only package that reads and writes the ConfigMaps of transactions.
//
// [Queue] accesses the API server directly. [Index] follows the namespace by a list and a watch:
// each transaction is parsed once, and the transactions of a node are kept in order.
package queue
