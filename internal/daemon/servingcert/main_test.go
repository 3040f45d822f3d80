package servingcert_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/test/controlplane"
)

// api is the API server of these tests.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}
