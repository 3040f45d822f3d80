// Package queue is the door to the transactions of all nodes: the only package that reads and
// writes their ConfigMaps.
//
// [Queue] goes to the API server itself. [Index] follows the namespace by a list and a watch:
// each transaction is parsed once, and those of a node are kept in their order.
package queue
