package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/internal/policy"
)

func TestAutoTakesWhatTheAPIServerServes(t *testing.T) {
	oldServer := meta.NewDefaultRESTMapper(nil)
	newServer := meta.NewDefaultRESTMapper([]schema.GroupVersion{admissionregistrationv1.SchemeGroupVersion})
	newServer.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	for name, tc := range map[string]struct {
		mode   policy.Mode
		mapper meta.RESTMapper
		want   policy.Mode
	}{
		"auto, old server":    {policy.Auto, oldServer, policy.ByWebhook},
		"auto, new server":    {policy.Auto, newServer, policy.ByPolicy},
		"policy, new server":  {policy.ByPolicy, newServer, policy.ByPolicy},
		"webhook, new server": {policy.ByWebhook, newServer, policy.ByWebhook},
		"none, new server":    {policy.None, newServer, policy.None},
	} {
		got, err := tc.mode.Resolve(tc.mapper)
		require.NoError(t, err, name)
		assert.Equal(t, tc.want, got, name)
	}
	_, err := policy.ByPolicy.Resolve(oldServer)
	require.ErrorContains(t, err, "Kubernetes 1.36")
}

func TestModesThatDoNotExistAreRefused(t *testing.T) {
	require.NoError(t, policy.Auto.Validate())
	require.NoError(t, policy.ByWebhook.Validate())
	require.ErrorContains(t, policy.Mode("").Validate(), "use auto")
}
