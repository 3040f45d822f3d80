// Package service holds what the watcher and the processor share as
// programs: their flags, the connection to the cluster, the checks at the start, and a
// controller-runtime manager with probes and metrics.
package service
