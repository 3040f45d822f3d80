package e2e_test

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// kubeconfigEnv names the kubeconfig of an existing cluster.
const kubeconfigEnv = "E2E_KUBECONFIG"

// foreignKubeconfig returns the kubeconfig of the cluster to use, or "" if the tests start their
// own.
func foreignKubeconfig() string { return os.Getenv(kubeconfigEnv) }

// cluster is an API server that only one test uses at a time.
type cluster struct {
	client     client.WithWatch
	kubeconfig string
	// plane is nil for a foreign cluster.
	plane *controlplane.ControlPlane
}

// planes holds the API servers of all tests, except a foreign one.
var planes = controlplane.Pool{New: func() (*controlplane.ControlPlane, error) {
	return controlplane.Start(controlplane.Options{APIServerArgs: map[string][]string{"enable-admission-plugins": {"NodeRestriction"}}})
}}

// takeCluster returns a cluster for the exclusive use of the test, until the test returns it.
func takeCluster() (*cluster, error) {
	if path := foreignKubeconfig(); path != "" {
		c := &cluster{kubeconfig: path}
		return c, c.connect()
	}
	plane, err := planes.Take()
	if err != nil {
		return nil, err
	}
	c := &cluster{kubeconfig: plane.Kubeconfig, plane: plane}
	return c, c.connect()
}

func (c *cluster) give() {
	if c.plane != nil {
		planes.Give(c.plane)
	}
}

func (c *cluster) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.QPS = -1
	if c.client, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	return nil
}
