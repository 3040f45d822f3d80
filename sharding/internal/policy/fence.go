package policy

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// fencePrefix is the prefix of the name of the policy that refuses requests of a shard for objects
// of other shards.
const fencePrefix = "sharding-fence-"

// Fence is a validating policy with its binding.
type Fence struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// Revision identifies the content of the policy. An API server that applies the policy with the
	// action Deny refuses a dry run that creates a ring whose drain label has this value, with a message
	// that contains it.
	Revision string
}

// fenceNames returns the names of the validating policies of a ring. Their bindings have the same
// names.
func fenceNames(ring string) []string { return []string{fencePrefix + ring, guardPrefix + ring} }

// fenced returns the resources of a ring to which its fences apply, in order.
func fenced(ring *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	all := slices.DeleteFunc(resourcesOf(ring), func(r v1alpha1.GroupResource) bool { return !place.CanFence(r) })
	slices.SortFunc(all, func(x, y v1alpha1.GroupResource) int { return strings.Compare(nameOf(x), nameOf(y)) })
	return all
}

// BuildFences returns the fence and the guard, the validating policies of a ring with service
// accounts and at least one resource that is not exempt, in the form in which the API server stores
// them. They have no parameter, and everything that they read is in the request, so an API server
// applies them from its first request on. They recognize the children of main objects whose resource
// is one of the given.
func (b *Builder) BuildFences(ring *v1alpha1.ClusterRing, resources []Resource) []Fence {
	e, c := b.expressions(ring), constantsOf(ring, nil)
	return []Fence{b.fence(ring, fencePrefix, func(revision string) admissionregistrationv1.ValidatingAdmissionPolicySpec {
		return admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "refused", Expression: e.unlessProbed(revision, c.isForeign(e)),
			}},
			Validations:      refusing(e.probedOr(revision, e.foreignMessage())),
			MatchConstraints: b.constraints(ring, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		}
	}), b.buildGuard(ring, resources)}
}

// fence completes a validating policy. The argument spec returns its parts for a revision.
func (b *Builder) fence(ring *v1alpha1.ClusterRing, prefix string, spec func(revision string) admissionregistrationv1.ValidatingAdmissionPolicySpec) Fence {
	revision := digest(spec(""))
	policy := spec(revision)
	policy.FailurePolicy = new(admissionregistrationv1.Ignore)
	action := admissionregistrationv1.Audit
	if ring.Spec.Fence == v1alpha1.FenceDeny {
		action = admissionregistrationv1.Deny
	}
	meta := metav1.ObjectMeta{Name: prefix + ring.Name, OwnerReferences: ownedBy(ring)}
	return Fence{
		Revision: revision,
		Policy:   &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policy},
		Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		},
	}
}

// constraints match operations on all fenced resources of a ring with their subresources, and the
// dry runs that show whether an API server applies the policy. The requests for some subresources,
// for example scale, contain another object without labels.
func (b *Builder) constraints(ring *v1alpha1.ClusterRing, operations ...admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{
		NamespaceSelector: b.namespaces(ring), ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: new(admissionregistrationv1.Equivalent),
	}
	var groups []string
	plurals := map[string][]string{}
	for _, r := range fenced(ring) {
		if plurals[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		plurals[r.Group] = append(plurals[r.Group], r.Resource, r.Resource+"/*")
	}
	for _, group := range groups {
		m.ResourceRules = append(m.ResourceRules, rule(group, plurals[group], operations...))
	}
	m.ResourceRules = append(m.ResourceRules, rule(v1alpha1.GroupName, []string{RingResource}, admissionregistrationv1.Create))
	return m
}

// refusing returns the validation of a policy whose match conditions are true only for requests that
// it refuses, so that it costs other requests no more than these conditions.
func refusing(message string) []admissionregistrationv1.Validation {
	return []admissionregistrationv1.Validation{{
		Expression: "false", MessageExpression: message, Reason: new(metav1.StatusReasonForbidden),
	}}
}

// unlessProbed returns an expression that is true for a dry run that asks for the revision, and
// otherwise that of a condition on updates and deletions.
func (e expressions) unlessProbed(revision, condition string) string {
	return "request.operation == 'CREATE' ? has(request.dryRun) && request.dryRun" +
		" && object.metadata.?labels[?" + quote(e.drain) + "].orValue('') == " + quote(revision) + " : " + condition
}

// probedOr returns an expression for the revision if a dry run asks for it, and otherwise for a
// message.
func (e expressions) probedOr(revision, message string) string {
	return "request.operation == 'CREATE' ? " + quote(revision) + " : " + message
}

// isForeign returns an expression that is true if a shard changes or deletes an object that is
// assigned to another shard, or that is between two shards.
func (c constants) isForeign(e expressions) string {
	return c.isAccountIn() + " && (" + e.former() + " != '' ? " + e.former() + " != " + callerPod + " : " + before(e.drain) + " != '')"
}

// foreignMessage returns an expression for the message about a request that isForeign refuses.
func (e expressions) foreignMessage() string {
	return "(" + e.former() + " != '' ? 'the object is assigned to shard ' + " + e.former() + " : 'the object is moving to shard ' + " + before(e.drain) + ")" +
		" + (" + callerPod + " != '' ? ', and this request comes from ' + " + callerPod +
		" : ', and the token of this request is not bound to a pod, so it cannot be that of a shard')" +
		" + ': a shard may change only objects whose label ' + " + quote(e.shard) +
		" + ' has the name of its pod. Stop working on the object and read it again, or set spec.fence of the ring to Audit'"
}
