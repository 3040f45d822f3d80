// Package monitoring tests deploy/monitoring, sharding/deploy/monitoring and
// placement/deploy/monitoring with what reads them: Prometheus' own parser and rule engine, and the
// types of the Prometheus operator. It is a module of its own for their dependencies. That the
// metrics exist is tested in test/deploy, sharding/test/program and placement/test/controller.
package monitoring
