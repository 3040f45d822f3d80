package claims

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// install creates a mutating policy and its binding with the same name. A policy without a failure
// policy fails open, like the sharder's policies. ring is the name of the param, if the policy has
// one.
func install(t *testing.T, c client.Client, name, ring string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionregistrationv1.Ignore)
	}
	spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	if ring != "" {
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: ring, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)}
	}
	createForTest(t, c, policy)
	createForTest(t, c, binding)
	return policy
}

// createForTest creates an object that is deleted at the end of the test.
func createForTest(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), object))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), object))) })
}

// on returns match constraints for operations on resources of one group, in any version.
func on(group string, resources []string, operations ...admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule(group, resources, operations...)}}
}

func rule(group string, resources []string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
	}}
}

// inNamespace restricts a policy to the objects of one test.
func inNamespace(namespace string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "of-this-test", Expression: "request.namespace == '" + namespace + "'"}
}

// applying returns a mutation with an apply configuration expression.
func applying(expression string) []admissionregistrationv1.Mutation {
	return []admissionregistrationv1.Mutation{{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
	}}
}

// patching returns a mutation with a JSON patch expression.
func patching(expression string) []admissionregistrationv1.Mutation {
	return []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
	}}
}

// define creates a custom resource definition and waits until the API server serves it. properties
// is the schema.
func define(t *testing.T, c client.Client, kind schema.GroupVersionKind, scope string, properties map[string]any) *unstructured.Unstructured {
	t.Helper()
	crd := newCRD(kind, scope, properties)
	createForTest(t, c, crd)
	waitFor(t, c, kind)
	return crd
}

// waitFor waits until the API server serves a custom resource. A client finds it by discovery, as
// the API server itself does for params.
func waitFor(t *testing.T, c client.Client, kind schema.GroupVersionKind) {
	t.Helper()
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		assert.NoError(collect, c.List(ctx, list))
	}, patience, period, "the API server serves the kind")
}

// newCRD returns the definition of a kind whose plural is its lower-case name with an s.
func newCRD(kind schema.GroupVersionKind, scope string, properties map[string]any) *unstructured.Unstructured {
	singular := strings.ToLower(kind.Kind)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": singular + "s." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": scope,
			"names": map[string]any{"plural": singular + "s", "singular": singular, "kind": kind.Kind, "listKind": kind.Kind + "List"},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
			}},
		},
	}}
}

func newObject(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}
