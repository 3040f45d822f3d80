// Package plugin tests the built plugin kubectl rings by running kubectl, with a real API server.
//
// go test ./sharding/test/plugin -update writes sharding/docs/cli.md.
package plugin
