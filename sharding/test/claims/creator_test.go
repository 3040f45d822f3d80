package claims

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/controlplane"
)

const (
	// podName is the key in userInfo.extra of the pod to which a service account token is bound.
	podName = "authentication.kubernetes.io/pod-name"
	// operator is the service account of the shards.
	operator = "operator"
)

// TestChildBelongsToItsCreator covers R19: a policy reads the name of the pod to which the token of
// the request is bound. It assigns a child to the shard of that name if the table lists it, and
// otherwise by the table.
func TestChildBelongsToItsCreator(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace, elsewhere := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	ring := newRing(t, c, namespace)
	table := slots.Table{}.With([]string{"web-0", "web-1"})
	setTable(t, c, ring, table)
	owner := ownedBy(t, table, namespace, "web-0")
	assignChildren(t, c, ring, namespace)
	create := rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	for _, n := range []string{namespace, elsewhere} {
		createForTest(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: n, Name: operator}})
		allow(t, c, serviceAccount(n), create)
	}
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		child := childOf(owner, namespace)
		require.NoError(collect, c.Create(ctx, child, client.DryRunAll))
		assert.Equal(collect, "web-0", child.Labels["shard"])
	}, patience, period, "the policy is in force, and has the table")

	for name, tc := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"a client certificate":                          {api.Config, "web-0"},
		"a token bound to a shard's pod":                {bearer(t, c, namespace, "web-1"), "web-1"},
		"a token bound to another pod":                  {bearer(t, c, namespace, "web-7"), "web-0"},
		"a token bound to no pod":                       {bearer(t, c, namespace, ""), "web-0"},
		"a token of the like-named account elsewhere":   {bearer(t, c, elsewhere, "web-1"), "web-0"},
		"an administrator who impersonates the account": {impersonating(api.Config, namespace, ""), "web-0"},
		"an administrator who impersonates the pod":     {impersonating(api.Config, namespace, "web-1"), "web-1"},
	} {
		child := childOf(owner, namespace)
		require.NoError(t, clientOf(t, tc.config).Create(ctx, child, client.DryRunAll), name)
		assert.Equal(t, tc.want, child.Labels["shard"], name)
	}
	foreign := childOf(owner, namespace)
	foreign.OwnerReferences[0].Kind = "ConfigMap"
	require.NoError(t, clientOf(t, impersonating(api.Config, namespace, "web-1")).Create(ctx, foreign, client.DryRunAll))
	assert.Empty(t, foreign.Labels, "the controller is no main object")
}

// TestPodNameTakesItsOwnRightToForge covers R19 for callers that are not administrators: permission
// to impersonate a service account does not include permission to impersonate one of its pods.
func TestPodNameTakesItsOwnRightToForge(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace := controlplane.Namespace(t, c)
	createForTest(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operator}})
	allow(t, c, serviceAccount(namespace), rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	path, err := api.KubeconfigFor(namespace + "-user")
	require.NoError(t, err)
	user, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	try := func(pod string) error {
		return clientOf(t, impersonating(user, namespace, pod)).Create(t.Context(), childOf("a", namespace), client.DryRunAll)
	}
	impersonate := rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}}
	extra := rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/" + podName}}

	assert.True(t, apierrors.IsForbidden(try("")), "without any right")
	allow(t, c, namespace+"-user", impersonate)
	require.NoError(t, try(""), "the account")
	assert.True(t, apierrors.IsForbidden(try("web-1")), "its pod")
	allow(t, c, namespace+"-user", extra)
	require.NoError(t, try("web-1"), "the pod")
}

// assignChildren makes the API server assign the ConfigMaps of a namespace that are controlled by a
// Secret: to the shard that creates them, by the name of its pod, or else by the ring of that
// namespace. The pod name counts only for the service account of the shards, because pod names are
// unique only within a namespace.
func assignChildren(t *testing.T, c client.Client, ring *unstructured.Unstructured, namespace string) {
	t.Helper()
	controllers := "object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false) && o.apiVersion == 'v1' && o.kind == 'Secret')"
	install(t, c, namespace, ring.GetName(), admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind:        paramKind(ring),
		MatchConstraints: on("", []string{"configmaps"}, admissionregistrationv1.Create),
		MatchConditions: []admissionregistrationv1.MatchCondition{
			inNamespace(namespace),
			{Name: "has-a-table", Expression: hasTable},
			{Name: "child", Expression: "size(" + controllers + ") == 1"},
		},
		Variables: []admissionregistrationv1.Variable{
			{Name: "creator", Expression: "request.userInfo.username == '" + serviceAccount(namespace) + "' ? request.userInfo.?extra[?'" + podName + "'][?0].orValue('') : ''"},
			{Name: "owner", Expression: controllers + "[0].name"},
		},
		Mutations: applying("Object{metadata: Object.metadata{labels: {'shard': variables.creator in params.table.shards ? variables.creator : " +
			shardOf("'/Secret/' + request.namespace + '/' + variables.owner") + "}}}"),
	})
}

// ownedBy returns the name of a Secret that the table assigns to a shard.
func ownedBy(t *testing.T, table slots.Table, namespace, shard string) (name string) {
	t.Helper()
	for {
		name += "a"
		if got, ok := table.Shard(slots.Object{Kind: "Secret", Namespace: namespace, Name: name}.Key()); !ok || got == shard {
			require.True(t, ok, "the table has shards")
			return name
		}
	}
}

func childOf(owner, namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "child",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: owner, UID: "no-one-checks", Controller: new(true)}},
	}}
}

func serviceAccount(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + operator
}

// bearer returns a config for the shards' service account. Its token is bound to a new pod unless
// pod is empty.
func bearer(t *testing.T, c client.Client, namespace, pod string) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != "" {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
			Spec:       corev1.PodSpec{ServiceAccountName: operator, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		createForTest(t, c, p)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operator}}
	require.NoError(t, c.SubResource("token").Create(t.Context(), account, request))
	config := rest.AnonymousClientConfig(api.Config)
	config.BearerToken = request.Status.Token
	return config
}

// impersonating returns a config with which a user impersonates the shards' service account, and
// one of its pods unless pod is empty.
func impersonating(user *rest.Config, namespace, pod string) *rest.Config {
	config := rest.CopyConfig(user)
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceAccount(namespace)}
	if pod != "" {
		config.Impersonate.Extra = map[string][]string{podName: {pod}}
	}
	return config
}

// allow grants a user a permission in all namespaces, and waits until the API server has observed
// that.
func allow(t *testing.T, c client.Client, user string, right rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: []rbacv1.PolicyRule{right}}
	createForTest(t, c, role)
	createForTest(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	resource, subresource, _ := strings.Cut(right.Resources[0], "/")
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: right.Verbs[0], Group: right.APIGroups[0], Resource: resource, Subresource: subresource,
			},
		}}
		require.NoError(collect, c.Create(ctx, review))
		assert.True(collect, review.Status.Allowed)
	}, patience, period, "the right of %s", user)
}
