package servingcert_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestCheckNamesTheRemedy uses only the permissions of a webhook.
func TestCheckNamesTheRemedy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	rest, err := clientcmd.BuildConfigFromFlags("", w.user)
	require.NoError(t, err)
	c, err := client.New(rest, client.Options{})
	require.NoError(t, err)
	check := func() error { return w.cfg.Check(t.Context(), c) }

	require.ErrorContains(t, check(), "run kubectl create secret generic webhook-certificate -n "+w.cfg.Namespace)
	byOthers := w.cfg
	byOthers.Rotate = false
	require.ErrorContains(t, byOthers.Check(t.Context(), c), "check the Certificate of cert-manager")

	w.createSecret(t, nil)
	require.NoError(t, byOthers.Check(t.Context(), c))
	require.NoError(t, check(), "a configuration that is missing turns the webhook off")

	w.createConfiguration(t, &replica{port: 1})
	require.NoError(t, check())
	other := w.cfg
	other.Service = "elsewhere"
	require.EqualError(t, other.Check(t.Context(), c), "MutatingWebhookConfiguration "+w.cfg.WebhookConfiguration+" does not send requests to Service "+w.cfg.Namespace+
		"/elsewhere: correct its clientConfig.service, or --service-namespace, --service or --webhook-configuration")
	config := w.configuration(t)
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/nodes")}
	}
	require.NoError(t, w.Update(t.Context(), config))
	assert.NoError(t, other.Check(t.Context(), c), "the address is not managed")
}
