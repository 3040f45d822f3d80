package plugin_test

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/kubectl"
	"nodekeeper.dev/test/programs"
)

var update = flag.Bool("update", false, "write sharding/docs/cli.md")

const (
	// patience bounds every wait. A busy machine must not make a test fail.
	patience = 3 * time.Minute
	period   = 100 * time.Millisecond
)

// set is a set of labels.
type set = map[string]string

// env is an API server with a user of the plugin.
type env struct {
	*kubectl.User

	t       *testing.T
	plane   *controlplane.ControlPlane
	client  client.Client
	secrets int // the number of created Secrets
}

// newEnv returns an environment with an API server of its own, which does not serve rings yet.
func newEnv(t *testing.T) *env {
	t.Helper()
	c, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	e := &env{User: kubectl.NewUser(t, "rings", c.Kubeconfig), t: t, plane: c}
	e.client, err = client.New(c.Config, client.Options{})
	require.NoError(t, err)
	return e
}

// install makes the API server serve rings, and creates the namespace of the shards.
func (e *env) install() {
	e.t.Helper()
	require.NoError(e.t, crds.Install(e.t.Context(), e.plane.Config))
	require.NoError(e.t, e.client.Create(e.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shardNamespace}}))
}

// kill kills a program when the test ends, and logs its output if the test has failed.
func (e *env) kill(p *programs.Program) {
	e.t.Cleanup(func() {
		assert.NoError(e.t, p.Kill())
		if e.t.Failed() {
			e.t.Logf("%s:\n%s", p.Identity, p.Output())
		}
	})
}

// become runs the following commands as another user.
func (e *env) become(user string) {
	e.t.Helper()
	kubeconfig, err := e.plane.KubeconfigFor(user)
	require.NoError(e.t, err)
	e.Kubeconfig = kubeconfig
}

// fails returns the message of a command that must fail.
func (e *env) fails(args ...string) string {
	e.t.Helper()
	return e.Fails(1, args...)
}

// refuses returns the message of a command whose command line is invalid.
func (e *env) refuses(args ...string) string {
	e.t.Helper()
	return e.Fails(2, args...)
}

func (e *env) eventually(condition func(c *assert.CollectT), message string) {
	e.t.Helper()
	require.EventuallyWithT(e.t, condition, patience, period, message)
}
