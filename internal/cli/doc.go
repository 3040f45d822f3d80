// Package cli is the kubectl plugin: kubectl nodekeeper.
//
// What it knows it reads from the cluster by package inspect. What it changes it changes as everybody does: save and restore put
// transactions, which the processors apply; what touches a record is conditional on the record that was read. Nothing is decided here: what a
// transaction does is for package preserve to say.
//
// Each command has a file of its own name. Besides these: root.go is what all of them share, connect.go the cluster, output.go the
// formats, write.go what commands that write have in common, byhand.go transactions that people ask for, follow.go what happens
// live, errors.go what goes wrong.
package cli
