// Package shard tests the library for sharded controllers, sharding/shard, and its example, with a real API server and a real sharder.
package shard
