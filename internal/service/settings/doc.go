// Package settings is what the replicas say of themselves on their membership Leases, so that whoever
// reads the cluster knows what they run with. It is pure.
//
// The annotations:
//
//	nodekeeper.dev/version: v1.2.3
//	nodekeeper.dev/settings: '{"protect":"none","restore-mode":"replace","save-delay":"5s", …}'
//
// The settings are a JSON object: the flags of the replica by their names, without dashes, and their
// values as text. A reader leaves out names that it does not know, so more can be added. Anyone who
// may write these Leases can write any value, so Parse bounds the size and checks each value like its
// flag.
package settings
