// Package monitoring tests deploy/monitoring with what reads it: Prometheus' own parser and rule engine, and the types of the
// Prometheus operator. It is a module of its own for their dependencies. That the metrics exist is tested in test/deploy.
package monitoring
