// Package plugin is the kubectl plugin of the sharder: kubectl rings.
//
// It only reads: package ringview reads rings and objects, and explains them. Each command has a file
// of its own name; connect.go builds the client, and errors.go adds advice to errors.
package plugin
