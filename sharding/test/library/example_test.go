package library

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/programs"
)

// example starts a shard. It is killed at the end of the test.
func (c *cluster) example(name, journal string, args ...string) *programs.Program {
	c.t.Helper()
	p, err := programs.Launch(nil, "example-checksum", name, append([]string{
		"--kubeconfig=" + c.kubeconfig, "--ring=" + c.ring.Name, "--namespace=" + c.namespace, "--lease-namespace=" + c.namespace,
		"--shard-name=" + name, "--journal=" + journal, "--lease-duration=" + longLease.String(),
	}, args...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, p.Kill())
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", name, p.Output())
		}
	})
	return p
}

// hasChecksums asserts that each Secret has its ConfigMap at the same shard.
func (c *cluster) hasChecksums(t *assert.CollectT, n int) {
	secrets, stored := &corev1.SecretList{}, &corev1.ConfigMapList{}
	require.NoError(t, c.List(c.t.Context(), secrets, client.InNamespace(c.namespace)))
	require.NoError(t, c.List(c.t.Context(), stored, client.InNamespace(c.namespace)))
	at := map[string]string{}
	for _, m := range stored.Items {
		at[m.Name] = m.Labels[prefix.ShardLabel(c.ring.Name)]
	}
	require.Len(t, secrets.Items, n)
	for _, s := range secrets.Items {
		owner := s.Labels[prefix.ShardLabel(c.ring.Name)]
		require.NotEmpty(t, owner, s.Name)
		require.Equal(t, owner, at["checksums-"+s.Name], s.Name)
	}
}

// TestExamplesShareObjects covers R31: examples join and share the Secrets, and a leaving example
// hands its objects over before it exits.
func TestExamplesShareObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	journal := filepath.Join(t.TempDir(), "journal")
	c.secrets(40)
	c.example("web-0", journal)
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0")
		c.hasChecksums(t, 40)
	}, "the first shard has all")
	second := c.example("web-1", journal)
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0", "web-1")
		c.hasChecksums(t, 40)
	}, "the second has its share")
	asked := time.Now()
	require.NoError(t, second.Stop(patience))
	assert.Zero(t, second.ExitCode(), second.Output())
	if time.Since(asked) < 20*time.Second { // the default of LeaveTimeout, after which it ends with what it has
		assert.NotContains(t, c.owners(t), "web-1", "it ends when it has none")
	}
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0")
		c.hasChecksums(t, 40)
	}, "the first has all again")
}
