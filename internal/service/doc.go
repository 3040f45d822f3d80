// Package service contains the common parts of nodekeeper's services beyond package daemon: the
// settings that select labels, caches that hold only what is needed, and the ring of replicas.
package service
