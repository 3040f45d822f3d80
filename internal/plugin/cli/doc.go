// Package cli is the kubectl plugin: kubectl nodekeeper.
//
// It reads the cluster by package inspect, and the rings of the sharder by package ringview. It
// changes the cluster as the services do: save and restore put transactions, which the processors
// apply, and every write to a record is conditional on the record that was read. Nothing is decided
// here: package preserve decides what a transaction does.
//
// Each command has a file of its own name. Besides these: root.go is what all of them share,
// connect.go the cluster, connectrings.go the rings, output.go the formats, write.go what commands
// that write have in common, byhand.go transactions that people ask for, follow.go what happens
// live, errors.go what goes wrong. The page of ui is fed by uifeed.go, and uinode.go is what it shows of
// one node.
package cli
