// Package daemon contains the common parts of all programs that run in a cluster: common flags, the
// connection to the cluster, startup checks, probes, logs, and a controller-runtime manager.
package daemon
