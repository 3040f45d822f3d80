package ring_test

import (
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}
