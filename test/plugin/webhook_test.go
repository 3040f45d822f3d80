package plugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

// startWebhook starts a webhook, which no API server calls, and which needs the Secret to become
// ready.
func (e *env) startWebhook(args ...string) *programs.Program {
	e.t.Helper()
	address, err := ports.Address()
	require.NoError(e.t, err)
	p, err := programs.Start("webhook", "webhook-1", e.Kubeconfig, append([]string{
		"--transaction-namespace=" + e.transactions, "--metadata-namespace=" + e.metadata, "--membership-namespace=" + e.members,
		"--service-namespace=" + e.members, "--webhook-bind-address=" + address,
	}, args...)...)
	require.NoError(e.t, err)
	e.programs = append(e.programs, p)
	return p
}

func TestStatusAndVersionShowTheWebhooks(t *testing.T) {
	t.Parallel()
	e := newEnvOf(t, ownPlane(t)) // the configuration is cluster-scoped
	e.replica("w", "watcher", `{"node-selector":""}`)
	e.replica("p", "processor", `{"node-selector":"","restore-mode":"merge"}`)
	r := e.run("status")
	assert.Zero(t, r.code, "the webhook is optional: %s", r.stdout)
	assert.NotContains(t, r.stdout+e.must("version"), "ebhook")

	require.NoError(t, e.client.Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: inspect.WebhookConfiguration},
	}))
	const unwell = `(?s)^Status: +unwell: no ready webhook for MutatingWebhookConfiguration nodekeeper\nReplicas: +1 of 1 watcher alive, 1 of 1 processor alive, `
	r = e.run("status")
	assert.Regexp(t, unwell+"no webhook\n", r.stdout)
	assert.Equal(t, 1, r.code)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.members, Name: "webhook-certificate"}}
	require.NoError(t, e.client.Create(t.Context(), secret))
	p := e.startWebhook("--node-selector=pool=batch", "--gate", "--rotate-certificate=false")
	e.eventually(func(c *assert.CollectT) {
		assert.Regexp(c, unwell+"0 of 1 webhook ready\n", e.run("status").stdout)
	}, "the webhook is there, and has no certificate")
	e.stop(p)
	p = e.startWebhook("--node-selector=pool=batch", "--gate")
	e.eventually(func(c *assert.CollectT) {
		assert.Regexp(c, `(?s)^Status: +well\n.*, 1 of 1 webhook ready\n`, e.run("status").stdout)
	}, "the webhook is ready")
	shown := e.must("status", "-o", "wide")
	assert.Contains(t, shown, "  webhook-1: alive, ")
	assert.Contains(t, shown, "    gate=true\n")
	const nothing = "  Webhooks:     restore nothing while a processor differs from them in --node-selector, --restore-mode\n"
	assert.Contains(t, shown, nothing)
	shown = e.must("status")
	assert.Contains(t, shown, "  Differ in:    node-selector: none (p, w); pool=batch (webhook-1)\n")
	assert.Contains(t, shown, "  Differ in:    restore-mode: merge (p); replace (webhook-1)\n")
	assert.Contains(t, shown, nothing)
	assert.Regexp(t, `\nWebhooks: +[0-9A-Za-z.+_-]+\n`, e.must("version"))

	e.stop(p)
	assert.Regexp(t, unwell+"no webhook\n", e.run("status").stdout)
}
