package policy_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
)

func TestWebhooksNeverRejectAndAreBounded(t *testing.T) {
	r := ring()
	r.Spec.Resources = []v1alpha1.Resource{{GroupResource: secrets.GroupResource}}
	config, revision := builder().BuildWebhooks(r, []policy.Resource{secrets, deployments}, policy.Endpoint{Service: "s"})
	assert.Equal(t, "sharding-web", config.Name)
	assert.True(t, policy.IsWebhooks(config))
	assert.Equal(t, r.UID, config.OwnerReferences[0].UID)
	var actions []policy.Action
	for _, hook := range config.Webhooks {
		assert.Equal(t, admissionregistrationv1.Ignore, *hook.FailurePolicy, hook.Name)
		assert.Equal(t, int32(1), *hook.TimeoutSeconds, hook.Name)
		assert.Equal(t, admissionregistrationv1.SideEffectClassNone, *hook.SideEffects, hook.Name)
		assert.NotEmpty(t, hook.MatchConditions, hook.Name)
		assert.NotEmpty(t, hook.NamespaceSelector.MatchExpressions, hook.Name)
		require.NotNil(t, hook.ClientConfig.Service, hook.Name)
		assert.Equal(t, "sharder-system", hook.ClientConfig.Service.Namespace)
		of, shown, action, ok := policy.ParsePath(*hook.ClientConfig.Service.Path)
		require.True(t, ok, *hook.ClientConfig.Service.Path)
		assert.Equal(t, "web", of)
		assert.Equal(t, revision, shown)
		actions = append(actions, action)
	}
	assert.Equal(t, []policy.Action{policy.Acknowledge, policy.Assign, policy.Stick}, actions)
	for _, path := range []string{"/", "/rings/web", "/rings/web/1/delete", "/rings/web/1/assign/more"} {
		_, _, _, ok := policy.ParsePath(path)
		assert.False(t, ok, path)
	}
}

func TestRevisionOfWebhooksDependsOnTheContent(t *testing.T) {
	revision := func(r *v1alpha1.ClusterRing, to policy.Endpoint, resources ...policy.Resource) string {
		_, revision := builder().BuildWebhooks(r, resources, to)
		return revision
	}
	to := policy.Endpoint{URL: "https://10.0.0.1"}
	first := revision(ring(), to, secrets, deployments)
	assert.Equal(t, first, revision(ring(), to, deployments, secrets), "the order does not matter")
	assert.NotEqual(t, first, revision(ring(), to, secrets))
	assert.NotEqual(t, first, revision(ring(), policy.Endpoint{URL: "https://10.0.0.2"}, secrets, deployments))
	everywhere := ring()
	everywhere.Spec.NamespaceSelector = &metav1.LabelSelector{}
	assert.NotEqual(t, first, revision(everywhere, to, secrets, deployments))
	config, _ := builder().BuildWebhooks(ring(), []policy.Resource{secrets}, to)
	parsed, err := url.Parse(*config.Webhooks[0].ClientConfig.URL)
	require.NoError(t, err)
	_, _, _, ok := policy.ParsePath(parsed.Path)
	assert.True(t, ok)
}

// An object that does not belong to the ring is never labelled, and an invalid table places nothing.
func TestDeciderWithoutAPlaceSetsNothing(t *testing.T) {
	r := ring()
	r.Spec.Resources = []v1alpha1.Resource{{GroupResource: secrets.GroupResource}}
	for name, table := range map[string]*v1alpha1.Table{
		"none": nil, "short": {Shards: []string{"a"}, Slots: []int32{0}}, "no label value": {Shards: []string{"not a label value"}, Slots: make([]int32, 1024)},
	} {
		r.Status.Table = table
		d := builder().Decider(r, []policy.Resource{secrets})
		request := &policy.Request{Resource: secrets.GroupResource, Object: &metav1.ObjectMeta{Name: "s"}, Old: &metav1.ObjectMeta{}}
		assert.Empty(t, d.Assign(request), name)
		assert.Empty(t, d.Stick(request, true), name)
		request.Resource = deployments.GroupResource
		assert.Empty(t, d.Assign(request), name)
	}
}
