package agents_test

import (
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

// api is the API server of these tests.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}
