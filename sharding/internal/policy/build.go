package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	assignPrefix = "sharding-assign-"
	stickPrefix  = "sharding-stick-"
	// ringKind is the kind of what policies take the table from.
	ringKind = "ClusterRing"
	// ringResource is what [Builder.Build] lets the sharder probe by.
	ringResource = "clusterrings"
	// systemNamespace has objects that the cluster itself needs. It is left alone by default.
	systemNamespace = "kube-system"
	// revisionLength is how many hexadecimal digits of a hash tell two versions of the policies apart.
	revisionLength = 16
)

// names returns the names of the policies of a ring, and of their bindings.
func names(ring string) []string { return []string{assignPrefix + ring, stickPrefix + ring} }

// ringOf returns the ring whose policy has a name, "" if that is no name of ours.
func ringOf(name string) string {
	for _, prefix := range []string{assignPrefix, stickPrefix} {
		if ring, ok := strings.CutPrefix(name, prefix); ok {
			return ring
		}
	}
	return ""
}

// Builder builds the policies of rings. All fields are required.
type Builder struct {
	Prefix v1alpha1.Prefix
	// Namespace is that of the sharder. Its objects are left alone by default.
	Namespace string
	// Sharders are the names of the users that may change sharding labels as they like.
	Sharders []string
}

// Pair is a policy with its binding.
type Pair struct {
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Policies are what is installed for a ring.
type Policies struct {
	Assign, Stick Pair
	// Revision tells these policies from others of the ring. In the answer to a dry run of the creation of
	// a ring whose shard label has any value, the API server that applies these policies has replaced the
	// value by it.
	Revision string
}

// Build returns the policies of a ring for some of its resources, at least one, in the form in which the
// API server stores them. The result does not depend on the order of the resources.
func (b *Builder) Build(ring *v1alpha1.ClusterRing, resources []Resource) Policies {
	resources = slices.SortedFunc(slices.Values(resources), func(x, y Resource) int { return strings.Compare(x.name(), y.name()) })
	e := expressions{shard: b.Prefix.ShardLabel(ring.Name), drain: b.Prefix.DrainLabel(ring.Name), children: b.Prefix.ChildrenAnnotation(ring.Name)}
	assign := b.spec(ring, rules(resources, admissionregistrationv1.Create), append(e.placing(resources), e.assigning()...), e.assign())
	assign.MatchConstraints.ResourceRules = append(assign.MatchConstraints.ResourceRules,
		rule(v1alpha1.GroupName, []string{ringResource}, admissionregistrationv1.Create))
	assign.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "no-ring-but-a-probe", Expression: e.noRingButAProbe()}}

	stick := b.spec(ring, rules(resources, admissionregistrationv1.Update), append(e.placing(resources), e.sticking()...), e.stick())
	stick.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: e.shard, Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
	stick.MatchConditions = []admissionregistrationv1.MatchCondition{
		{Name: "not-the-sharder", Expression: "!(request.userInfo.username in " + list(b.Sharders) + ")"},
		// The selector matches an update that adds the label, too.
		{Name: "has-no-shard", Expression: "!(" + quote(e.shard) + " in object.metadata.?labels.orValue({}))"},
	}

	revision := revisionOf(assign, stick)
	assign.Variables = append([]admissionregistrationv1.Variable{{Name: "revision", Expression: quote(revision)}}, assign.Variables...)
	return Policies{Assign: b.pair(ring, assignPrefix, assign), Stick: b.pair(ring, stickPrefix, stick), Revision: revision}
}

// revisionOf returns a hash of specs. It is a label value.
func revisionOf(specs ...admissionregistrationv1.MutatingAdmissionPolicySpec) string {
	text, err := json.Marshal(specs)
	if err != nil {
		text = fmt.Append(nil, specs) // never: they are strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:revisionLength]
}

func (b *Builder) spec(ring *v1alpha1.ClusterRing, rules []admissionregistrationv1.NamedRuleWithOperations, variables []admissionregistrationv1.Variable, patch string) admissionregistrationv1.MutatingAdmissionPolicySpec {
	return admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: ringKind},
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

// namespaces returns the selector of a ring. Objects that are cluster-scoped match any, but Namespaces by
// their own labels.
func (b *Builder) namespaces(ring *v1alpha1.ClusterRing) *metav1.LabelSelector {
	if ring.Spec.NamespaceSelector != nil {
		return ring.Spec.NamespaceSelector.DeepCopy()
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{systemNamespace, b.Namespace},
	}}}
}

// pair returns a policy, which goes with its ring, and the binding to it.
func (b *Builder) pair(ring *v1alpha1.ClusterRing, prefix string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) Pair {
	meta := metav1.ObjectMeta{Name: prefix + ring.Name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: ringKind, Name: ring.Name, UID: ring.UID, Controller: new(true),
	}}}
	return Pair{
		Policy: &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: spec},
		Binding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: *meta.DeepCopy(),
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: meta.Name,
				ParamRef:   &admissionregistrationv1.ParamRef{Name: ring.Name, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)},
			},
		},
	}
}

// rules returns a rule for each group of the resources, which are in order. Updates of a status count as
// updates.
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

func rule(group string, resources []string, operation admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources, Scope: new(admissionregistrationv1.AllScopes),
		},
	}}
}
