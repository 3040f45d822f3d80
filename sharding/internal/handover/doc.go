// Package handover decides what the sharder does about one object: assign it, ask its shard to give it
// away, or leave it. It is pure.
package handover
