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

// webhookPrefix is the prefix of the name of the MutatingWebhookConfiguration of a ring.
const webhookPrefix = "sharding-"

// WebhookPath is the prefix of the paths at which the API server calls the webhooks of rings:
// /rings/<ring>/<revision>/<action>.
const WebhookPath = "/rings/"

// Action is one of the webhooks of a ring.
type Action string

const (
	// Assign decides about new objects, and about rings that show the revision of the webhooks.
	Assign Action = "assign"
	// Acknowledge decides about updates by a caller that can be the shard of the object.
	Acknowledge Action = "acknowledge"
	// Stick decides about updates by other callers.
	Stick Action = "stick"
)

// webhookTimeout is the time in seconds for which a request waits for a webhook.
const webhookTimeout = 1

// Endpoint is where the API server calls the webhooks.
type Endpoint struct {
	// URL, if set, is the address of the webhooks without a path. Otherwise the API server calls the
	// Service, in the namespace of the sharder.
	URL, Service string
}

// Webhooks configures the webhooks of rings.
type Webhooks struct {
	Endpoint Endpoint
	// Bundle returns the authorities that the API server must trust, in PEM, or nil for those that its
	// machine trusts. Required.
	Bundle func() []byte
	// Kept is set if another controller updates the caBundle of existing configurations.
	Kept bool
}

// bundleFor returns the caBundle of webhooks that replace others.
func (w *Webhooks) bundleFor(former []admissionregistrationv1.MutatingWebhook) []byte {
	if w.Kept && len(former) > 0 && len(former[0].ClientConfig.CABundle) > 0 {
		return former[0].ClientConfig.CABundle
	}
	return w.Bundle()
}

// ParsePath returns the parts of a path at which the API server calls a webhook.
func ParsePath(path string) (ring, revision string, action Action, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, WebhookPath), "/")
	if len(parts) != 3 {
		return "", "", "", false
	}
	action = Action(parts[2])
	return parts[0], parts[1], action, slices.Contains([]Action{Assign, Acknowledge, Stick}, action)
}

// IsWebhooks reports whether a configuration is that of a ring.
func IsWebhooks(config *admissionregistrationv1.MutatingWebhookConfiguration) bool {
	ring, ok := strings.CutPrefix(config.Name, webhookPrefix)
	return ok && belongsTo(config, ring)
}

// BuildWebhooks returns the webhooks of a ring for some of its resources, at least one, and a
// revision that identifies their content. They make the decisions of the policies, and have the form
// in which the API server stores them, without caBundle. An API server that calls them replaces the
// value of the shard label by the revision in the response to a dry run that creates a ring with a
// shard label.
func (b *Builder) BuildWebhooks(ring *v1alpha1.ClusterRing, resources []Resource, to Endpoint) (config *admissionregistrationv1.MutatingWebhookConfiguration, revision string) {
	resources = slices.SortedFunc(slices.Values(resources), func(x, y Resource) int { return strings.Compare(x.name(), y.name()) })
	e, c := b.expressions(ring), constantsOf(ring, resources)
	creates := append(rules(resources, admissionregistrationv1.Create), rule(v1alpha1.GroupName, []string{RingResource}, admissionregistrationv1.Create))
	assign := b.webhook(ring, Assign, creates)
	assign.MatchConditions = []admissionregistrationv1.MatchCondition{
		{Name: "no-ring-but-a-probe", Expression: e.noRingButAProbe()},
		{Name: "relevant", Expression: theRing + " || " + e.isCopy() + " || " + c.isOurs()},
	}
	hooks := []admissionregistrationv1.MutatingWebhook{assign}
	isShard := c.isShard(e.former(), e.isDraining())
	for action, caller := range map[Action]string{Acknowledge: isShard, Stick: "!(" + isShard + ")"} {
		hook := b.webhook(ring, action, rules(resources, admissionregistrationv1.Update))
		hook.ObjectSelector = e.unassigned()
		hook.MatchConditions = append(b.notTheSharder(e),
			admissionregistrationv1.MatchCondition{Name: "relevant", Expression: c.isOurs()},
			admissionregistrationv1.MatchCondition{Name: "caller", Expression: caller})
		hooks = append(hooks, hook)
	}
	slices.SortFunc(hooks, func(x, y admissionregistrationv1.MutatingWebhook) int { return strings.Compare(x.Name, y.Name) })
	revision = digest(hooks, to)
	for i := range hooks {
		to.set(&hooks[i], b.Namespace, WebhookPath+ring.Name+"/"+revision+"/"+strings.SplitN(hooks[i].Name, ".", 2)[0])
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookPrefix + ring.Name, OwnerReferences: ownedBy(ring)}, Webhooks: hooks,
	}, revision
}

// webhook returns a webhook without match conditions and without an address.
func (b *Builder) webhook(ring *v1alpha1.ClusterRing, action Action, rules []admissionregistrationv1.NamedRuleWithOperations) admissionregistrationv1.MutatingWebhook {
	hook := admissionregistrationv1.MutatingWebhook{
		Name:                    string(action) + "." + v1alpha1.GroupName,
		NamespaceSelector:       b.namespaces(ring),
		ObjectSelector:          &metav1.LabelSelector{},
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		FailurePolicy:           new(admissionregistrationv1.Ignore),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		ReinvocationPolicy:      new(admissionregistrationv1.NeverReinvocationPolicy),
		TimeoutSeconds:          new(int32(webhookTimeout)),
		AdmissionReviewVersions: []string{"v1"},
	}
	for _, r := range rules {
		hook.Rules = append(hook.Rules, r.RuleWithOperations)
	}
	return hook
}

// set sets the address of a webhook.
func (e Endpoint) set(hook *admissionregistrationv1.MutatingWebhook, namespace, path string) {
	if e.URL != "" {
		hook.ClientConfig.URL = new(e.URL + path)
		return
	}
	hook.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: e.Service, Path: &path, Port: new(int32(443))}
}

// isOurs returns an expression that is true if an object can belong to the ring.
func (c constants) isOurs() string { return c.isOursIn("object") }

// isOursIn is isOurs for a variable.
func (c constants) isOursIn(variable string) string {
	is := this + " in " + list(c.mains)
	if len(c.owners) > 0 {
		is += " || " + variable + ".metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && " +
			groupOf("o") + " + '/' + o.kind + ' ' + " + this + " in " + list(sortedKeys(c.owners)) + ")"
	}
	return "(" + is + ")"
}

// isCopy returns an expression that is true if an object has sharding metadata of the ring.
func (e expressions) isCopy() string {
	const labels = " in object.metadata.?labels.orValue({}) || "
	return quote(e.shard) + labels + quote(e.drain) + labels + quote(e.children) + " in object.metadata.?annotations.orValue({})"
}

// digest returns a hash of values, which is a valid label value.
func digest(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		text = fmt.Append(nil, values...) // unreachable: they consist of strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:revisionLength]
}
