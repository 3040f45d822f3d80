package policy

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// podName is the key of the user's extra attribute that names the pod to which the token of a
// request is bound. The API server sets it.
const podName = "authentication.kubernetes.io/pod-name"

// maxKey is the length of the longest key of an object with valid names, "<253>/<63>/<63>/<253>".
// The name of a controller can have any length, and computing the slot of a long one exceeds the
// cost limit of an expression.
const maxKey = "635"

// expressions builds the Common Expression Language expressions for one ring.
type expressions struct {
	// shard and drain are label keys; children is an annotation key.
	shard, drain, children string
}

// placing returns the variables that determine where the table places an object, in the order of
// their dependencies. The ring defines the main and controlled resources and their keys. Only the
// kinds are constants, because the ring does not contain them. The results are:
//
//   - resource: a list with the main resource of the object or of its controller, empty for an
//     object that does not belong to the ring
//   - placed: the name of the shard, "" if there is none
func (e expressions) placing(resources []Resource) []admissionregistrationv1.Variable {
	const theResource = "group == request.resource.group && $.resource == request.resource.resource"
	is := func(name string) string { return name + "." + strings.ReplaceAll(theResource, "$", name) }
	return []admissionregistrationv1.Variable{
		{Name: "kinds", Expression: kindsOf(resources)},
		{Name: "clusterScoped", Expression: list(clusterScoped(resources))},
		{Name: "labels", Expression: "object.metadata.?labels.orValue({})"},
		{Name: "main", Expression: "params.spec.resources.filter(r, " + is("r") + ")"},
		{Name: "controller", Expression: "size(variables.main) > 0 ? [] : object.metadata.?ownerReferences.orValue([])" +
			".filter(o, o.?controller.orValue(false))" +
			".map(o, {'name': string(o.name), 'kind': (o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : '') + '/' + o.kind})"},
		{Name: "owner", Expression: "params.spec.resources.filter(r, size(variables.controller) > 0" +
			" && variables.kinds[?(r.group + '/' + r.resource)].orValue('') == variables.controller[0].kind" +
			" && r.?controlledResources.orValue([]).exists(c, " + is("c") + "))"},
		{Name: "resource", Expression: "variables.main + variables.owner"},
		{Name: "keyLabel", Expression: "variables.resource[?0].?keyLabel.orValue('')"},
		{Name: "by", Expression: "size(variables.resource) == 0 ? 'nothing'" +
			" : variables.keyLabel != '' && variables.keyLabel in variables.labels ? 'label'" +
			" : variables.resource[0].?key.orValue('') == '" + string(v1alpha1.KeyNamespace) + "' ? 'namespace' : 'name'"},
		{Name: "kind", Expression: "size(variables.controller) > 0 ? variables.controller[0].kind : request.kind.group + '/' + request.kind.kind"},
		{Name: "inNamespace", Expression: "size(variables.controller) > 0 && variables.kind in variables.clusterScoped ? '' : object.metadata.?namespace.orValue('')"},
		// An object with generateName has no name yet.
		{Name: "name", Expression: "size(variables.controller) > 0 ? variables.controller[0].name : object.metadata.?name.orValue('')"},
		{Name: "key", Expression: "variables.by == 'label' ? variables.labels[variables.keyLabel]" +
			" : variables.by == 'namespace' ? variables.inNamespace" +
			" : variables.kind + '/' + variables.inNamespace + '/' + variables.name"},
		{Name: "hasKey", Expression: "variables.by != 'nothing' && (variables.by != 'name' || variables.name != '') && size(variables.key) <= " + maxKey},
		{Name: "shards", Expression: "params.?status.?table.?shards.orValue([])"},
		// New objects are placed by the next table, which excludes the silent shards.
		{Name: "slots", Expression: "[params.?status.?table.?next.orValue([]), params.?status.?table.?slots.orValue([])].filter(s, size(s) == 1024)"},
		{Name: "index", Expression: "variables.hasKey && size(variables.slots) > 0 ? int(variables.slots[0][" + slots.CEL("variables.key") + "]) : -1"},
		{Name: "placed", Expression: valid("variables.index >= 0 && variables.index < size(variables.shards) ? string(variables.shards[variables.index]) : ''")},
		{Name: "accounts", Expression: "params.spec.shards.namespace == '*' ? [] : params.spec.shards.?serviceAccounts.orValue([])" +
			".map(a, 'system:serviceaccount:' + params.spec.shards.namespace + ':' + a)"},
	}
}

// assigning returns the variables that the assign policy uses in addition to those of placing. The
// variable creator is the shard that creates a child, if the table lists it: a shard must see the
// children that it creates even while their main object moves.
func (e expressions) assigning() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "probe", Expression: theRing},
		{Name: "creator", Expression: "size(variables.owner) > 0 && request.userInfo.username in variables.accounts ? request.userInfo.?extra[?'" + podName + "'][?0].orValue('') : ''"},
		{Name: "shard", Expression: "variables.creator != '' && variables.creator in variables.shards ? " + valid("variables.creator") + " : variables.placed"},
	}
}

// theRing is an expression that is true if a request concerns a ring.
const theRing = "request.resource.group == '" + v1alpha1.GroupName + "' && request.resource.resource == '" + ringResource + "'"

// noRingButAProbe returns an expression that is true unless a request concerns a ring and is not a
// dry run that asks for the revision.
func (e expressions) noRingButAProbe() string {
	return "!(" + theRing + ") || has(request.dryRun) && request.dryRun && " + quote(e.shard) + " in object.metadata.?labels.orValue({})"
}

// assign returns the patch of a new object. It sets the shard label and removes all other sharding
// metadata of this ring, because metadata in a create request is a copy from another object.
func (e expressions) assign() string {
	return "variables.probe ? [JSONPatch{op: 'replace', path: '" + labelPath(e.shard) + "', value: variables.revision}] :\n" +
		e.set("variables.shard", "") + " +\n" +
		remove(labelPath(e.shard), "variables.shard == '' && "+quote(e.shard)+" in variables.labels") + " +\n" +
		remove(labelPath(e.drain), quote(e.drain)+" in variables.labels") + " +\n" +
		remove("/metadata/annotations/"+escape(e.children), quote(e.children)+" in object.metadata.?annotations.orValue({})")
}

// sticking returns the variables that the stick policy uses in addition to those of placing. A
// shard acknowledges a drain by removing its label.
func (e expressions) sticking() []admissionregistrationv1.Variable {
	before := func(label string) string { return "oldObject.metadata.?labels[?" + quote(label) + "].orValue('')" }
	return []admissionregistrationv1.Variable{
		{Name: "ours", Expression: "size(variables.resource) > 0"},
		{Name: "shard", Expression: before(e.shard)},
		{Name: "target", Expression: before(e.drain)},
		{Name: "draining", Expression: quote(e.drain) + " in variables.labels"},
		{Name: "acknowledged", Expression: "variables.ours && variables.shard != '' && variables.target != ''" +
			" && (size(variables.accounts) == 0 || request.userInfo.username in variables.accounts)"},
		{Name: "parked", Expression: "variables.acknowledged && variables.draining && size(variables.resource[0].?controlledResources.orValue([])) > 0"},
		{Name: "moved", Expression: "variables.acknowledged && !variables.parked"},
		{Name: "setShard", Expression: "!variables.ours || variables.parked ? '' : variables.moved ? variables.target" +
			" : variables.shard != '' ? variables.shard : variables.target == '' && !variables.draining ? variables.placed : ''"},
		{Name: "setDrain", Expression: "!variables.ours || variables.moved ? '' : variables.target"},
	}
}

// stick returns the patch for an object that has no shard after an update.
func (e expressions) stick() string {
	return e.set("variables.setShard", "variables.setDrain") + " +\n" +
		remove(labelPath(e.drain), "variables.moved && variables.draining")
}

// set returns operations that set the labels to the values of two expressions. The expression for
// drain may be "". A label whose expression evaluates to ” is not set.
func (e expressions) set(shard, drain string) string {
	some, add := shard+" != ''", addLabel(e.shard, shard)
	if drain != "" {
		some += " || " + drain + " != ''"
		add += " +\n" + addLabel(e.drain, drain)
	}
	return "((" + some + ") && !has(object.metadata.labels) ? [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}] : []) +\n" + add
}

func addLabel(label, value string) string {
	return "(" + value + " == '' ? [] : [JSONPatch{op: 'add', path: '" + labelPath(label) + "', value: " + value + "}])"
}

// remove returns an operation that removes the value at a path if a condition is true.
func remove(path, condition string) string {
	return "(" + condition + " ? [JSONPatch{op: 'remove', path: '" + path + "'}] : [])"
}

// valid returns an expression that evaluates to a value if it is a valid label value, and to ”
// otherwise. It is needed because failure policy Ignore does not cover a patch with an invalid
// result.
func valid(value string) string {
	return "[" + value + "].filter(v, !format.labelValue().validate(v).hasValue())[?0].orValue('')"
}

func labelPath(label string) string { return "/metadata/labels/" + escape(label) }

// escape escapes a key for a JSON pointer. Label keys contain no tildes.
func escape(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// kindsOf returns a map literal from resources to kinds.
func kindsOf(resources []Resource) string {
	all := make([]string, len(resources))
	for i, r := range resources {
		all[i] = quote(r.name()) + ": " + quote(r.kind())
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func clusterScoped(resources []Resource) (kinds []string) {
	for _, r := range resources {
		if r.ClusterScoped {
			kinds = append(kinds, r.kind())
		}
	}
	return kinds
}

func list(values []string) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = quote(v)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

var quoting = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`)

// quote returns a string literal. User names can contain any characters.
func quote(s string) string { return "'" + quoting.Replace(s) + "'" }
