// Package claims tests the assumptions of the sharder's design about Kubernetes, with one small
// test for each claim, against a real API server. The tests do not use the sharder, except for its
// slots.
package claims
