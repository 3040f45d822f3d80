// Package ready computes the readiness of a resource whose virtual replicas are placed: the
// conditions Scheduled, Acknowledged and Ready.
//
// Ready means that every desired virtual replica has an owner that has acknowledged it and works on
// it, and that no other incarnation may still be working on it. The package is pure, and its
// functions are safe for concurrent use.
package ready
