// Package ready says how far a resource is whose virtual replicas are placed: the conditions
// Scheduled, Acknowledged and Ready.
//
// Ready means that every desired virtual replica has an owner which has acknowledged it and works on it,
// and that nobody else may still work on it. Everything here is pure and safe for concurrent use.
package ready
