package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/controlplane"
)

const (
	shardPrefix    = "shard.sharding.nodekeeper.dev/"
	drainPrefix    = "drain.sharding.nodekeeper.dev/"
	childrenPrefix = "children.sharding.nodekeeper.dev/"
	// sharder is the user that is exempt from sticking.
	sharder = "test:sharder"
)

// TestLabelsStick covers R20: one policy implements all its rules, for all kinds of updates. In
// this ring, Secrets have controlled resources and ConfigMaps do not.
func TestLabelsStick(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace := controlplane.Namespace(t, c)
	ring := newRing(t, c, namespace)
	setTable(t, c, ring, slots.Table{}.With([]string{"table"}))
	s, d := shardPrefix+ring.GetName(), drainPrefix+ring.GetName()
	stick(t, c, ring, namespace)
	probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	require.NoError(t, c.Create(t.Context(), probe))
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Update(ctx, probe))
		assert.Equal(collect, "table", probe.Labels[s])
	}, patience, period, "the policy is in force, and has the table")

	admins := func(user string) client.Client {
		config := rest.CopyConfig(api.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return clientOf(t, config)
	}
	callers := map[string]client.Client{"shard": admins(serviceAccount(namespace)), "sharder": admins(sharder), "other": c}
	type labels = map[string]string
	n := 0
	for name, tc := range map[string]struct {
		kind, caller     string
		before, as, want labels
	}{
		"1: a shard acknowledges":                             {"Secret", "shard", labels{s: "a", d: "b"}, labels{d: "b"}, labels{d: "b"}},
		"1: a shard acknowledges, nothing is controlled":      {"ConfigMap", "shard", labels{s: "a", d: "b"}, labels{d: "b"}, labels{s: "b"}},
		"2: a shard of protocol 1 acknowledges":               {"Secret", "shard", labels{s: "a", d: "b"}, nil, labels{s: "b"}},
		"2: the same, nothing is controlled":                  {"ConfigMap", "shard", labels{s: "a", d: "b"}, nil, labels{s: "b"}},
		"3: a shard drops an assignment that is not draining": {"Secret", "shard", labels{s: "a"}, nil, labels{s: "a"}},
		"3: a shard drops the target of a parked object":      {"Secret", "shard", labels{d: "b"}, nil, labels{d: "b"}},
		"3: another drops the assignment":                     {"Secret", "other", labels{s: "a"}, nil, labels{s: "a"}},
		"3: another drops the assignment in a drain":          {"Secret", "other", labels{s: "a", d: "b"}, labels{d: "b"}, labels{s: "a", d: "b"}},
		"3: another drops both":                               {"Secret", "other", labels{s: "a", d: "b"}, nil, labels{s: "a", d: "b"}},
		"3: another drops both, nothing is controlled":        {"ConfigMap", "other", labels{s: "a", d: "b"}, nil, labels{s: "a", d: "b"}},
		"3: another drops the target of a parked object":      {"Secret", "other", labels{d: "b"}, nil, labels{d: "b"}},
		"3: but the policy does not see the target go alone":  {"Secret", "other", labels{s: "a", d: "b"}, labels{s: "a"}, labels{s: "a"}},
		"4: there is no assignment":                           {"Secret", "other", nil, nil, labels{s: "table"}},
		"4: there is no assignment, by a shard":               {"ConfigMap", "shard", nil, nil, labels{s: "table"}},
		"the sharder assigns a parked object":                 {"Secret", "sharder", labels{d: "b"}, labels{s: "b"}, labels{s: "b"}},
		"the sharder cleans up":                               {"Secret", "sharder", labels{s: "a", d: "b"}, nil, nil},
	} {
		for how, update := range updates {
			n++
			object := newObject(schema.GroupVersionKind{Version: "v1", Kind: tc.kind}, namespace, fmt.Sprintf("object-%d", n))
			object.SetLabels(tc.before)
			// The next applier owns all labels and drops the ones that it omits.
			require.NoError(t, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("applier")))
			got, err := update(ctx, callers[tc.caller], object, tc.as)
			require.NoError(t, err, "%s, by %s", name, how)
			assert.Equal(t, tc.want, got.GetLabels(), "%s, by %s", name, how)
		}
	}
}

// updates are the ways to change the labels of an object. The object has no resourceVersion.
var updates = map[string]func(context.Context, client.Client, *unstructured.Unstructured, map[string]string) (*unstructured.Unstructured, error){
	"PUT": func(ctx context.Context, c client.Client, object *unstructured.Unstructured, labels map[string]string) (*unstructured.Unstructured, error) {
		object.SetLabels(labels)
		return object, c.Update(ctx, object)
	},
	"merge patch": func(ctx context.Context, c client.Client, object *unstructured.Unstructured, labels map[string]string) (*unstructured.Unstructured, error) {
		patch := map[string]any{}
		for label := range object.GetLabels() {
			patch[label] = nil
		}
		for label, value := range labels {
			patch[label] = value
		}
		return object, c.Patch(ctx, object, rawPatch(types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": patch}}))
	},
	"JSON patch": func(ctx context.Context, c client.Client, object *unstructured.Unstructured, labels map[string]string) (*unstructured.Unstructured, error) {
		patch := []map[string]any{}
		for label := range object.GetLabels() {
			patch = append(patch, map[string]any{"op": "remove", "path": "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")})
		}
		for label, value := range labels {
			patch = append(patch, map[string]any{"op": "add", "path": "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1"), "value": value})
		}
		return object, c.Patch(ctx, object, rawPatch(types.JSONPatchType, patch))
	},
	"apply": func(ctx context.Context, c client.Client, object *unstructured.Unstructured, labels map[string]string) (*unstructured.Unstructured, error) {
		object.SetLabels(labels)
		return object, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("applier"), client.ForceOwnership)
	},
}

func rawPatch(kind types.PatchType, patch any) client.Patch {
	content, err := json.Marshal(patch)
	if err != nil {
		panic(err) // unreachable: it contains only strings
	}
	return client.RawPatch(kind, content)
}

// TestObjectSelectorMatchesEitherVersion covers R20: a policy for objects without a label matches
// an update that removes the label and one that adds it, and does not affect updates of objects
// that keep it. The status is a separate resource: for some kinds, a write of the status can remove
// labels, and only a policy that lists the status matches it.
func TestObjectSelectorMatchesEitherVersion(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	namespace := controlplane.Namespace(t, c)
	for name, resources := range map[string][]string{"main": {"pods", "deployments"}, "status": {"pods/status", "deployments/status"}} {
		matches := on("*", resources, admissionregistrationv1.Update)
		matches.ObjectSelector = without("shard")
		install(t, c, namespace+"-"+name, "", admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: matches,
			MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(namespace)},
			Mutations:        applying("Object{metadata: Object.metadata{annotations: {'" + name + "': 'ran'}}}"),
		})
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	newPod := func() client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: template.Spec}
	}
	newDeployment := func() client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "deployment-"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
		}}
	}
	// write creates an object with one value of the label and updates it, or its status, with
	// another one. An empty value means no label.
	write := func(ctx context.Context, c client.Client, object client.Object, before, after string, status bool) (client.Object, error) {
		if before != "" {
			object.SetLabels(map[string]string{"shard": before})
		}
		if err := c.Create(ctx, object); err != nil {
			return nil, err
		}
		labels := map[string]any{"shard": nil}
		if after != "" {
			labels["shard"] = after
		}
		patch := rawPatch(types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": labels}})
		if status {
			return object, c.Status().Patch(ctx, object, patch)
		}
		return object, c.Patch(ctx, object, patch)
	}
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for _, status := range []bool{false, true} {
			object, err := write(ctx, c, newPod(), "", "", status)
			require.NoError(collect, err)
			assert.Len(collect, object.GetAnnotations(), 1)
		}
	}, patience, 10*period, "the policies are in force")

	ran := func(name string) map[string]string { return map[string]string{name: "ran"} }
	for name, tc := range map[string]struct {
		create        func() client.Object
		before, after string
		status        bool
		marks         map[string]string
		label         string
	}{
		"keeps the label":                         {newPod, "a", "a", false, nil, "a"},
		"changes the label":                       {newPod, "a", "b", false, nil, "b"},
		"drops the label":                         {newPod, "a", "", false, ran("main"), ""},
		"sets the label":                          {newPod, "", "a", false, ran("main"), "a"},
		"has no label":                            {newPod, "", "", false, ran("main"), ""},
		"status, keeps the label":                 {newPod, "a", "a", true, nil, "a"},
		"status, drops the label":                 {newPod, "a", "", true, ran("status"), ""},
		"status of a Deployment, drops the label": {newDeployment, "a", "", true, ran("status"), "a"},
		"a Deployment, drops the label":           {newDeployment, "a", "", false, ran("main"), ""},
	} {
		object, err := write(ctx, c, tc.create(), tc.before, tc.after, tc.status)
		require.NoError(t, err, name)
		assert.Equal(t, tc.label, object.GetLabels()["shard"], name)
		delete(object.GetAnnotations(), "deployment.kubernetes.io/revision")
		assert.Equal(t, tc.marks, object.GetAnnotations(), name)
	}
}

// TestOnlyPatchesRemoveLabels shows why the policies of the sharder use JSON patches: an apply
// configuration can only add labels, and setting a label to null is an error.
func TestOnlyPatchesRemoveLabels(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	cases := map[string]struct {
		mutations []admissionregistrationv1.Mutation
		fails     bool
		want      map[string]string
	}{
		"patch":                {patching("[JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c')}, JSONPatch{op: 'add', path: '/metadata/labels/new', value: ''}]"), false, map[string]string{"new": ""}},
		"apply without a key":  {applying("Object{metadata: Object.metadata{labels: {?'a.b/c': optional.none(), 'new': ''}}}"), false, map[string]string{"a.b/c": "", "new": ""}},
		"apply null":           {applying("Object{metadata: Object.metadata{labels: {'a.b/c': dyn(null), 'new': dyn('')}}}"), true, nil},
		"patch without escape": {patching("[JSONPatch{op: 'remove', path: '/metadata/labels/a.b/c'}]"), true, nil},
	}
	namespaces := map[string]string{}
	for name, tc := range cases { // All are installed before the API server looks for changes, once a second.
		namespace := controlplane.Namespace(t, c)
		install(t, c, namespace, "", admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:    new(admissionregistrationv1.Fail),
			MatchConstraints: on("", []string{"configmaps"}, admissionregistrationv1.Create),
			MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(namespace)},
			Mutations:        tc.mutations,
		})
		namespaces[name] = namespace
	}
	ctx := t.Context()
	for name, tc := range cases {
		namespace := namespaces[name]
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe", Labels: map[string]string{"a.b/c": ""}}}
			err := c.Create(ctx, object, client.DryRunAll)
			if tc.fails {
				assert.ErrorContains(collect, err, "denied request", name)
				return
			}
			require.NoError(collect, err)
			assert.Equal(collect, tc.want, object.Labels, name)
		}, patience, period)
	}
}

// Failure policy Ignore covers errors of expressions. Nevertheless, a request fails if a policy
// makes the object invalid.
func TestIgnoreCoversNoBadResult(t *testing.T) {
	t.Parallel()
	c := policyClient(t)
	cases := map[string]struct {
		mutations []admissionregistrationv1.Mutation
		refused   func(error) bool
	}{
		"type":  {patching("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'new': 1}}]"), apierrors.IsInternalError},
		"field": {patching("[JSONPatch{op: 'add', path: '/unknown', value: ''}]"), apierrors.IsInternalError},
		"value": {applying("Object{metadata: Object.metadata{labels: {'new': 'not a label value'}}}"), apierrors.IsInvalid},
	}
	namespaces := map[string]string{}
	for name, tc := range cases { // All are installed before the API server looks for changes, once a second.
		namespace := controlplane.Namespace(t, c)
		install(t, c, namespace, "", admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: on("", []string{"configmaps"}, admissionregistrationv1.Create),
			MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(namespace)},
			Mutations:        tc.mutations,
		})
		namespaces[name] = namespace
	}
	ctx := t.Context()
	for name, tc := range cases {
		namespace := namespaces[name]
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}, client.DryRunAll)
			assert.True(collect, tc.refused(err), "%s: %v", name, err)
		}, patience, period)
	}
}

func without(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist}}}
}

// stick makes the API server follow R20 for the Secrets and ConfigMaps of a namespace.
func stick(t *testing.T, c client.Client, ring *unstructured.Unstructured, namespace string) {
	t.Helper()
	s, d := "'"+shardPrefix+ring.GetName()+"'", "'"+drainPrefix+ring.GetName()+"'"
	matches := on("", []string{"secrets", "configmaps"}, admissionregistrationv1.Update)
	matches.ObjectSelector = without(shardPrefix + ring.GetName())
	labels := ".metadata.?labels.orValue({})"
	table := shardOf("request.kind.group + '/' + request.kind.kind + '/' + request.namespace + '/' + request.name")
	set := func(label, to string) string {
		return "(" + to + " == '' ? [] : [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey(" + label + "), value: " + to + "}])"
	}
	install(t, c, namespace, ring.GetName(), admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind:        paramKind(ring),
		MatchConstraints: matches,
		MatchConditions: []admissionregistrationv1.MatchCondition{
			inNamespace(namespace),
			{Name: "not-the-sharder", Expression: "request.userInfo.username != '" + sharder + "'"},
			{Name: "has-no-assignment", Expression: "!(" + s + " in object" + labels + ")"},
		},
		Variables: []admissionregistrationv1.Variable{
			{Name: "shard", Expression: "oldObject" + labels + "[?" + s + "].orValue('')"},
			{Name: "target", Expression: "oldObject" + labels + "[?" + d + "].orValue('')"},
			{Name: "draining", Expression: d + " in object" + labels},
			{Name: "acknowledged", Expression: "variables.shard != '' && variables.target != '' && request.userInfo.username in ['" + serviceAccount(namespace) + "']"},
			{Name: "parked", Expression: "variables.acknowledged && variables.draining && request.resource.resource in ['secrets']"},
			{Name: "setShard", Expression: "variables.parked ? '' : variables.acknowledged ? variables.target : variables.shard != '' ? variables.shard : " +
				"variables.target == '' && !variables.draining && " + hasTable + " ? " + table + " : ''"},
			{Name: "setDrain", Expression: "variables.acknowledged && !variables.parked ? '' : variables.target"},
		},
		Mutations: patching("(has(object.metadata.labels) || variables.setShard + variables.setDrain == '' ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) + " +
			set(s, "variables.setShard") + " + " + set(d, "variables.setDrain") +
			" + (variables.acknowledged && !variables.parked && variables.draining ? [JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(" + d + ")}] : [])"),
	})
}
