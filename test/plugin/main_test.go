package plugin_test

import (
	"flag"
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

var (
	api *controlplane.ControlPlane
	// update has what the tests see taken for right.
	update = flag.Bool("update", false, "write the golden files and the sessions of docs/cli anew")
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}
