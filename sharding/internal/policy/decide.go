package policy

import (
	"slices"
	"strings"
	"unicode/utf8"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// accountPrefix is the prefix of the names of service accounts as users.
const accountPrefix = "system:serviceaccount:"

// Decider makes the decisions of the policies of one ring in Go, for its webhooks: the variables of
// [expressions] are functions here. It is pure, immutable and safe for concurrent use.
type Decider struct {
	keys expressions
	c    constants
	// shards are the live shards, and next is the shard of each slot, or nil if there is no table.
	shards, next []string
}

// Request is a request to create or update an object.
type Request struct {
	Resource v1alpha1.GroupResource
	Kind     schema.GroupKind
	// Object is the metadata of the object in the request, and Old the metadata of the stored object,
	// or nil on creation.
	Object, Old *metav1.ObjectMeta
	User        authenticationv1.UserInfo
}

// Decider returns the decider of a ring for some of its resources. It uses the table in the status
// of the ring.
func (b *Builder) Decider(ring *v1alpha1.ClusterRing, resources []Resource) *Decider {
	d := &Decider{keys: b.expressions(ring), c: constantsOf(ring, resources), next: nextOf(ring.Status.Table)}
	if d.next != nil {
		d.shards = slices.Clone(ring.Status.Table.Shards)
	}
	return d
}

// Assign returns the patch of a new object, like the policy sharding-assign.
func (d *Decider) Assign(r *Request) (patch []jsonpatch.Operation) {
	p := d.placing(r)
	shard := p.shard
	if creator := d.podOf(r); p.isChild && d.isAccount(r) && creator != "" && slices.Contains(d.shards, creator) {
		shard = valid(creator)
	}
	patch = set(r, map[string]string{d.keys.shard: shard})
	if shard == "" {
		patch = append(patch, removeLabel(r, d.keys.shard)...)
	}
	patch = append(patch, removeLabel(r, d.keys.drain)...)
	if _, ok := r.Object.Annotations[d.keys.children]; ok {
		patch = append(patch, jsonpatch.NewOperation("remove", "/metadata/annotations/"+escape(d.keys.children), nil))
	}
	return patch
}

// Stick returns the patch of an object that has no shard after an update, like the policy
// sharding-stick. The argument byShard is set if the caller can be the shard that had the object: the
// match conditions of the webhooks determine it.
func (d *Decider) Stick(r *Request, byShard bool) (patch []jsonpatch.Operation) {
	p := d.placing(r)
	if p.main == "" {
		return nil
	}
	shard, target := r.Old.Labels[d.keys.shard], r.Old.Labels[d.keys.drain]
	_, draining := r.Object.Labels[d.keys.drain]
	acknowledged := shard != "" && target != "" && byShard
	parked := acknowledged && draining && slices.Contains(d.c.controlling, p.main)
	switch {
	case parked:
		return set(r, map[string]string{d.keys.drain: target})
	case acknowledged:
		return append(set(r, map[string]string{d.keys.shard: target}), removeLabel(r, d.keys.drain)...)
	case shard == "" && target == "" && !draining:
		shard = p.shard
	}
	return set(r, map[string]string{d.keys.shard: shard, d.keys.drain: target})
}

// placement is where the table places an object.
type placement struct {
	// main is the main resource of the object or of its controller, or "" for an object that does not
	// belong to the ring.
	main    string
	isChild bool
	// shard is the name of the shard, or "" if there is none.
	shard string
}

// Assigns reports whether a patch assigns an object that is new or had neither a shard nor a target.
func (d *Decider) Assigns(r *Request, patch []jsonpatch.Operation) bool {
	if r.Old != nil && r.Old.Labels[d.keys.shard]+r.Old.Labels[d.keys.drain] != "" {
		return false
	}
	return slices.ContainsFunc(patch, func(o jsonpatch.Operation) bool { return o.Operation == "add" && o.Path == LabelPath(d.keys.shard) })
}

func (d *Decider) placing(r *Request) (p placement) {
	this, namespace, name := nameOf(r.Resource), r.Object.Namespace, r.Object.Name
	kind := r.Kind.Group + "/" + r.Kind.Kind
	if slices.Contains(d.c.mains, this) {
		p.main = this
	} else if owner := metav1.GetControllerOfNoCopy(r.Object); owner != nil {
		group, _, hasGroup := strings.Cut(owner.APIVersion, "/")
		if !hasGroup {
			group = ""
		}
		kind, name = group+"/"+owner.Kind, owner.Name
		p.main = d.c.owners[kind+" "+this]
		p.isChild = p.main != ""
		if slices.Contains(d.c.clusterScoped, kind) {
			namespace = ""
		}
	}
	if p.main == "" {
		return p
	}
	key, ok := kind+"/"+namespace+"/"+name, name != ""
	value, hasLabel := r.Object.Labels[d.c.keyLabels[p.main]]
	switch {
	case hasLabel && d.c.keyLabels[p.main] != "":
		key, ok = value, true
	case slices.Contains(d.c.byNamespace, p.main):
		key, ok = namespace, true
	}
	if ok && utf8.RuneCountInString(key) <= maxKey && d.next != nil {
		p.shard = valid(d.next[slots.Slot(key)])
	}
	return p
}

// isAccount reports whether the caller has one of the shards' service accounts.
func (d *Decider) isAccount(r *Request) bool {
	account, ok := strings.CutPrefix(r.User.Username, accountPrefix)
	namespace, name, hasName := strings.Cut(account, ":")
	if !ok || !hasName || d.c.namespace != v1alpha1.AnyNamespace && namespace != d.c.namespace {
		return false
	}
	return slices.Contains(d.c.accounts, name)
}

// podOf returns the pod to which the token of a request is bound, or "".
func (d *Decider) podOf(r *Request) string {
	if pods := r.User.Extra[podName]; len(pods) > 0 {
		return pods[0]
	}
	return ""
}

// valid returns a value if it is a valid label value, and "" otherwise.
func valid(value string) string {
	if len(validation.IsValidLabelValue(value)) > 0 {
		return ""
	}
	return value
}

// set returns operations that set labels, except those with an empty value.
func set(r *Request, values map[string]string) (patch []jsonpatch.Operation) {
	hasLabels := r.Object.Labels != nil
	for _, label := range sortedKeys(values) {
		if values[label] == "" {
			continue
		}
		if !hasLabels {
			patch, hasLabels = append(patch, jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{})), true
		}
		patch = append(patch, jsonpatch.NewOperation("add", LabelPath(label), values[label]))
	}
	return patch
}

// removeLabel returns the operation that removes a label that the object has.
func removeLabel(r *Request, label string) []jsonpatch.Operation {
	if _, ok := r.Object.Labels[label]; !ok {
		return nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("remove", LabelPath(label), nil)}
}
