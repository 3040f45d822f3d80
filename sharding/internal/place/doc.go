// Package place determines where the objects of a ring belong: which namespaces the ring selects,
// which key determines an object's slot, and which shard has that slot in the table of the ring's
// status. It is pure.
//
// The sharder and the plugin use it. The admission policies compute the same results in the API
// server.
package place
