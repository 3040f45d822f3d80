// Package telemetry reports changes to nodes and records by logs, metrics and events.
package telemetry
