// Package library tests the library for sharded controllers, sharding/shard, with its example and
// tutorial, against a real API server and a real sharder.
package library
