// Package shard tests the library for sharded controllers, sharding/shard, its example, and their
// tutorial, with a real API server and a real sharder.
package shard
