package claims

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}

func adminClient(t *testing.T) client.Client {
	t.Helper()
	return clientOf(t, api.Config)
}

// policyClient is adminClient for tests of policies. An API server that serves none skips them.
func policyClient(t *testing.T) client.Client {
	t.Helper()
	controlplane.NeedMutatingPolicies(t, api.Kubeconfig)
	return adminClient(t)
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return c
}
