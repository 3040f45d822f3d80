package policy

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	sharderring "nodekeeper.dev/sharding/internal/ring"
)

const (
	assignPrefix = "sharding-assign-"
	stickPrefix  = "sharding-stick-"
	// ringKind is the kind of the policies' owner.
	ringKind = "ClusterRing"
	// RingResource is the resource of the dry runs that detect whether the API server applies the
	// policies.
	RingResource = "clusterrings"
	// systemNamespace contains objects that the cluster itself needs. It is excluded by default.
	systemNamespace = "kube-system"
	// revisionLength is the number of hexadecimal digits of a policy revision.
	revisionLength = 16
)

// names returns the names of the policies of a ring. Their bindings have the same names.
func names(ring string) []string { return []string{assignPrefix + ring, stickPrefix + ring} }

// ringOf returns the ring of a policy or table, or "" if the name is not one of this package's.
func ringOf(name string) string {
	for _, prefix := range []string{assignPrefix, stickPrefix, fencePrefix, tablePrefix} {
		if ring, ok := strings.CutPrefix(name, prefix); ok {
			return ring
		}
	}
	return ""
}

// Builder builds the policies of rings.
type Builder struct {
	Prefix v1alpha1.Prefix
	// Namespace is the namespace of the sharder and of the tables. It is excluded by default.
	Namespace string
	// Sharders are the names of the users whose writes as the sharder's field manager may change
	// sharding labels without restrictions.
	Sharders []string
	// ByWebhook is set if webhooks, which may not answer, make the decisions of the mutating policies.
	ByWebhook bool
}

// Pair is a policy with its binding.
type Pair struct {
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Policies are the policies of a ring.
type Policies struct {
	Assign, Stick Pair
	// Revision identifies the content of these policies. An API server that applies them replaces
	// the value of the shard label by the revision in the response to a dry run that creates a ring
	// with a shard label.
	Revision string
}

// Build returns the policies of a ring for some of its resources, at least one. They have the form
// in which the API server stores them. The result does not depend on the order of the resources.
func (b *Builder) Build(ring *v1alpha1.ClusterRing, resources []Resource) Policies {
	resources = slices.SortedFunc(slices.Values(resources), func(x, y Resource) int { return strings.Compare(x.name(), y.name()) })
	e := b.expressions(ring)
	c := constantsOf(ring, resources)
	variables, shard := e.assigning(c)
	assign := b.spec(ring, rules(resources, admissionregistrationv1.Create), variables, e.assign(shard, ""))
	assign.MatchConstraints.ResourceRules = append(assign.MatchConstraints.ResourceRules,
		rule(v1alpha1.GroupName, []string{RingResource}, admissionregistrationv1.Create))
	assign.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "no-ring-but-a-probe", Expression: e.noRingButAProbe()}}

	stick := b.spec(ring, rules(resources, admissionregistrationv1.Update), e.sticking(c), e.stick())
	stick.MatchConstraints.ObjectSelector = e.unassigned()
	stick.MatchConditions = b.notTheSharder(e)

	revision := digest(assign, stick)
	assign.Mutations[0].JSONPatch.Expression = e.assign(shard, revision)
	return Policies{Assign: b.pair(ring, assignPrefix, assign), Stick: b.pair(ring, stickPrefix, stick), Revision: revision}
}

func (b *Builder) expressions(ring *v1alpha1.ClusterRing) expressions {
	return expressions{shard: b.Prefix.ShardLabel(ring.Name), drain: b.Prefix.DrainLabel(ring.Name), children: b.Prefix.ChildrenAnnotation(ring.Name)}
}

// unassigned returns the selector of updates of objects that have no shard before or after.
func (e expressions) unassigned() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: e.shard, Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
}

// notTheSharder returns the match conditions of updates after which an object has no shard, except
// those by the sharder.
func (b *Builder) notTheSharder(e expressions) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		// Others can have the user of the sharder, for example an administrator.
		{Name: "not-the-sharder", Expression: "!(request.userInfo.username in " + list(b.Sharders) +
			" && request.options.?fieldManager.orValue('') == " + quote(sharderring.FieldManager) + ")"},
		// The selector also matches an update that adds the label.
		{Name: "has-no-shard", Expression: "!(" + quote(e.shard) + " in object.metadata.?labels.orValue({}))"},
	}
}

func (b *Builder) spec(ring *v1alpha1.ClusterRing, rules []admissionregistrationv1.NamedRuleWithOperations, variables []admissionregistrationv1.Variable, patch string) admissionregistrationv1.MutatingAdmissionPolicySpec {
	return admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: paramKind(),
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: b.namespaces(ring),
			ObjectSelector:    &metav1.LabelSelector{},
			ResourceRules:     rules,
			MatchPolicy:       new(admissionregistrationv1.Equivalent),
		},
		Variables: variables,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patch},
		}},
		FailurePolicy:      new(admissionregistrationv1.Ignore),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}
}

// paramKind returns the kind of the parameters. After a restart, an API server finds its own kinds
// at once, but can need half a minute to find a custom resource, and applies no policy with such a
// parameter until then.
func paramKind() *admissionregistrationv1.ParamKind {
	return &admissionregistrationv1.ParamKind{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ConfigMap"}
}

// paramRef returns the reference to a parameter. A policy is not applied while it is missing.
func paramRef(namespace, name string) *admissionregistrationv1.ParamRef {
	return &admissionregistrationv1.ParamRef{Namespace: namespace, Name: name, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)}
}

// namespaces returns the namespace selector of a ring. Cluster-scoped objects match any selector,
// except that Namespaces are matched by their own labels.
func (b *Builder) namespaces(ring *v1alpha1.ClusterRing) *metav1.LabelSelector {
	if ring.Spec.NamespaceSelector != nil {
		return ring.Spec.NamespaceSelector.DeepCopy()
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{systemNamespace, b.Namespace},
	}}}
}

// pair returns a policy that is owned by the ring, and its binding.
func (b *Builder) pair(ring *v1alpha1.ClusterRing, prefix string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) Pair {
	meta := metav1.ObjectMeta{Name: prefix + ring.Name, OwnerReferences: ownedBy(ring)}
	return Pair{
		Policy: &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: spec},
		Binding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name,
				ParamRef:   paramRef(b.Namespace, tablePrefix+ring.Name),
			},
		},
	}
}

// ownedBy returns the owner references of an object that belongs to a ring.
func ownedBy(ring *v1alpha1.ClusterRing) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: ringKind, Name: ring.Name, UID: ring.UID, Controller: new(true)}}
}

// rules returns one rule for each group of the resources, which must be sorted. Updates of the
// status subresource are included in updates.
func rules(resources []Resource, operation admissionregistrationv1.OperationType) (all []admissionregistrationv1.NamedRuleWithOperations) {
	var groups []string
	plurals := map[string][]string{}
	for _, r := range resources {
		if plurals[r.Group] == nil {
			groups = append(groups, r.Group)
		}
		plurals[r.Group] = append(plurals[r.Group], r.Resource)
		if r.Status && operation == admissionregistrationv1.Update {
			plurals[r.Group] = append(plurals[r.Group], r.Resource+"/status")
		}
	}
	for _, group := range groups {
		all = append(all, rule(group, plurals[group], operation))
	}
	return all
}

func rule(group string, resources []string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources, Scope: new(admissionregistrationv1.AllScopes),
		},
	}}
}
