package policy

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// anchorName is the name of policies that match no request and are never deleted. When no policy of
// a type has ConfigMaps as parameters any more, an API server of Kubernetes 1.36 stops watching them
// and never starts again: later policies of either type would see the ConfigMaps of that time. With
// an anchor of each type, this does not happen when the last ring is deleted.
const anchorName = "sharding-anchor"

// anchors returns the anchors, each policy before its binding.
func anchors(namespace string) []client.Object {
	name := metav1.ObjectMeta{Name: anchorName}
	ref := paramRef(namespace, anchorName)
	nothing := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		rule(v1alpha1.GroupName, []string{"none"}, admissionregistrationv1.Create),
	}}
	return []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: paramKind(), MatchConstraints: nothing, FailurePolicy: new(admissionregistrationv1.Ignore),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[JSONPatch{op: 'test', path: '/kind', value: object.kind}]"},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: anchorName, ParamRef: ref,
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: paramKind(), MatchConstraints: nothing, FailurePolicy: new(admissionregistrationv1.Ignore),
			Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: anchorName, ParamRef: ref, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
		}},
	}
}

// ensureAnchors creates the anchors that do not exist. It must be called before the policies of a
// ring are written or deleted.
func (c *Controller) ensureAnchors(ctx context.Context) error {
	for _, o := range anchors(c.Namespace) {
		if err := c.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) { // they never change
			return fmt.Errorf("creating %T %s: %w", o, anchorName, err)
		}
	}
	return nil
}
