// Package monitoring tests deploy/monitoring and sharding/deploy/monitoring with what reads them: Prometheus' own parser and rule
// engine, and the types of the Prometheus operator. It is a module of its own for their dependencies. That the metrics exist is
// tested in test/deploy and sharding/test/program.
package monitoring
