// Package sharding has the tests of what the design of the sharder takes for granted about Kubernetes, one small test for each claim, against
// a real API server. They need nothing of the sharder but its slots.
package sharding
