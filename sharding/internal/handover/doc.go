// Package handover decides how the sharder handles one object: assign it, ask its shard to release
// it, or leave it as it is. It is pure.
package handover
