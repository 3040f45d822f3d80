// Package cli is the kubectl plugin: kubectl nodekeeper.
//
// It reads the cluster through package inspect, and changes it through package byhand, like the
// services do: save and restore put transactions, which the processors apply, and every write to a
// record is conditional on the record that was read. Package preserve decides the effect of a
// transaction.
//
// Each command has a file of its own name. root.go has the root command, connect.go the connection,
// serving.go the settings of the servers, write.go the flags of commands that write, request.go the
// requests of save and restore, and follow.go the watches. uifeed.go feeds the page of ui, and
// uinode.go has its view of one node. What the plugin shares with other plugins is in package
// command.
package cli
