package deploy_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// cluster is an API server that a test has for itself while it runs, and a client of it with admin rights. The manifests
// have names of their own, so no two tests can apply them to one API server at a time.
type cluster struct {
	client.Client

	plane *controlplane.ControlPlane
}

// newCluster returns a cluster until the test ends. It hands the warnings of the API server to a handler. What other tests
// installed in it may still be there.
func newCluster(t *testing.T, warnings rest.WarningHandler) *cluster {
	t.Helper()
	plane, err := planes.Take()
	require.NoError(t, err)
	t.Cleanup(func() { planes.Give(plane) }) // last, after all that the test cleans up
	cfg := rest.CopyConfig(plane.Config)
	cfg.WarningHandler = warnings
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return &cluster{c, plane}
}

// auditLog returns the path of what the API server has noted.
func (c *cluster) auditLog() string { return filepath.Join(c.plane.Dir, auditLogName) }
