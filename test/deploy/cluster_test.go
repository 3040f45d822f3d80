package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// cluster is an API server that a test uses exclusively, and a client of it with admin permissions.
// The names in the manifests are fixed, so two tests cannot use one API server at the same time.
type cluster struct {
	client.Client

	plane *controlplane.ControlPlane
}

// newCluster returns a cluster for the duration of the test. Warnings of the API server go to a
// handler. Objects of earlier tests may still exist.
func newCluster(t *testing.T, warnings rest.WarningHandler) *cluster {
	t.Helper()
	plane, err := planes.Take()
	require.NoError(t, err)
	t.Cleanup(func() { planes.Give(plane) }) // last, after all other cleanup
	cfg := rest.CopyConfig(plane.Config)
	cfg.WarningHandler = warnings
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return &cluster{c, plane}
}
