// Package daemon holds what all programs share that run in a cluster: the flags that each has, the
// connection to the cluster, the checks at the start, probes, logs, and a controller-runtime manager.
package daemon
