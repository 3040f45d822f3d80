package policy

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// fencePrefix is the prefix of the names of fences.
const fencePrefix = "sharding-fence-"

// formerGuardPrefix is the prefix of the names of the policies with which sharders guarded metadata
// before the fence did that. After an upgrade, they would go on refusing whatever the ring asks
// for.
const formerGuardPrefix = "sharding-guard-"

// Fence is the validating policy of a ring with its binding. It refuses requests of a shard for
// objects of other shards, and changes of sharding metadata by others than the sharder. It is one
// policy, because the API server converts the old and the new object for each policy.
type Fence struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// Revision identifies the content of the policy. An API server that applies the policy with the
	// action Deny refuses a dry run that creates a ring whose drain label has this value, with a message
	// that contains it.
	Revision string
}

// fenced returns the resources of a ring to which its fences apply, in order.
func fenced(ring *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	all := slices.DeleteFunc(resourcesOf(ring), func(r v1alpha1.GroupResource) bool { return !place.CanFence(r) })
	slices.SortFunc(all, func(x, y v1alpha1.GroupResource) int { return strings.Compare(nameOf(x), nameOf(y)) })
	return all
}

// BuildFence returns the fence of a ring with service accounts and at least one resource that is
// not exempt, in the form in which the API server stores it. It has no parameter, and everything
// that it reads is in the request, so an API server applies it from its first request on. It
// recognizes the children of main objects whose resource is one of the given.
func (b *Builder) BuildFence(ring *v1alpha1.ClusterRing, resources []Resource) Fence {
	revision := digest(b.fenceSpec(ring, resources, ""))
	action := admissionregistrationv1.Audit
	if ring.Spec.Fence == v1alpha1.FenceDeny {
		action = admissionregistrationv1.Deny
	}
	meta := metav1.ObjectMeta{Name: fencePrefix + ring.Name, OwnerReferences: ownedBy(ring)}
	return Fence{
		Revision: revision,
		Policy:   &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: b.fenceSpec(ring, resources, revision)},
		Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		},
	}
}

// fenceSpec returns the policy for a revision. Its match condition is true only for requests that
// it refuses, so that it costs other requests no more than this condition.
func (b *Builder) fenceSpec(ring *v1alpha1.ClusterRing, resources []Resource, revision string) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	e, c := b.expressions(ring), constantsOf(ring, resources)
	foreign := "(" + c.isForeign(e) + ")"
	meddling := "request.operation == 'UPDATE' && " + c.isMeddling(e, b)
	message := foreign + " ? " + e.foreignMessage() + " : " + b.isSharder() + " ? " + quote(sharderMessage) + " : " + quote(e.guardMessage(ring.Name))
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    new(admissionregistrationv1.Ignore),
		MatchConstraints: b.constraints(ring, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: "refused", Expression: e.unlessProbed(revision, foreign+" || "+meddling),
		}},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "false", MessageExpression: e.probedOr(revision, message), Reason: new(metav1.StatusReasonForbidden),
		}},
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

// unlessProbed returns an expression that is true for a dry run that asks for the revision, and
// otherwise that of a condition on updates and deletions.
func (e expressions) unlessProbed(revision, condition string) string {
	return "request.operation == 'CREATE' ? has(request.dryRun) && request.dryRun" +
		" && object.metadata.?labels[?" + quote(e.drain) + "].orValue('') == " + quote(revision) + " : (" + condition + ")"
}

// probedOr returns an expression for the revision if a dry run asks for it, and otherwise for a
// message.
func (e expressions) probedOr(revision, message string) string {
	return "request.operation == 'CREATE' ? " + quote(revision) + " : (" + message + ")"
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
