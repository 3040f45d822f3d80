// Package place says where the objects of a ring belong: which namespaces the ring selects, by which key an
// object has its slot, and which shard has the slot by the table in the ring's status. It is pure.
//
// The sharder and the plugin use it. The admission policies compute the same in the API server.
package place
