// Package settings defines the settings that replicas publish on their membership Leases, so that
// readers of the cluster can see their configuration. It is pure.
//
// The annotations:
//
//	nodekeeper.dev/version: v1.2.3
//	nodekeeper.dev/settings: '{"protect":"none","restore-mode":"replace","save-delay":"5s", …}'
//	nodekeeper.dev/applied-late: 2026-07-15T10:02:00Z, late by 1m30s
//
// The settings are a JSON object with the flags of the replica, by name without dashes, and their
// values as text. Readers ignore unknown names, so more can be added. Anyone who may write these
// Leases can write any value, so Parse bounds the size and validates each value like its flag.
package settings
