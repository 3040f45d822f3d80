package txn_test

import (
	"flag"
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

// api is the API server of the queue's tests.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzzworker").Value.String() == "true" {
		os.Exit(m.Run()) // go test -fuzz starts many of these, and no fuzz target needs an API server
	}
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}
