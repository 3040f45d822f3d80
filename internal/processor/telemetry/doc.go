// Package telemetry reports by logs, metrics and events what is done to nodes and records.
package telemetry
