package policy

import (
	"maps"
	"slices"
	"strconv"
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
const maxKey = 635

// expressions builds the Common Expression Language expressions for one ring.
type expressions struct {
	// shard and drain are label keys; children is an annotation key.
	shard, drain, children string
}

// placing returns the variables that determine where the table places an object, in the order of
// their dependencies. What the ring's spec contains is in constants, and the parameter contains the
// table. The result placed is the name of the shard, "" if there is none. It may be no valid label
// value, because other clients can edit the table.
//
// The API server evaluates a variable when another expression uses it for the first time. Each one
// costs it as much as several operations, and a little even if it is not evaluated. So most values
// that are used once have none, and a ring without controlled resources has none for children.
func (e expressions) placing(c constants) (all []admissionregistrationv1.Variable) {
	key := c.keyOfMain()
	if c.hasChildren {
		all = []admissionregistrationv1.Variable{
			{Name: "isMain", Expression: this + " in " + list(c.mains)},
			{Name: "controller", Expression: "object.metadata.?ownerReferences.orValue([])" +
				".filter(o, o.?controller.orValue(false))" +
				".map(o, {'name': string(o.name), 'kind': " + groupOf("o") + " + '/' + o.kind})"},
			{Name: "owner", Expression: "variables.isMain || size(variables.controller) == 0 ? '' : " +
				literal(c.owners) + "[?(variables.controller[0].kind + ' ' + " + this + ")].orValue('')"},
		}
		key = "(variables.isMain ? " + key + " : variables.owner != '' ? " + c.keyOfChild() + " : [])"
	}
	return append(all, []admissionregistrationv1.Variable{
		{Name: "slot", Expression: key + ".map(key, size(key) <= " + strconv.Itoa(maxKey) + " ? " + slots.CEL("key") + " : -1)[?0].orValue(-1)"},
		{Name: "index", Expression: "variables.slot < 0 ? '' : params.?data.?" + tableRows + ".orValue('')" +
			element(rowSeparator, "variables.slot / "+strconv.Itoa(rowLength)) + element(separator, "variables.slot % "+strconv.Itoa(rowLength))},
		{Name: "placed", Expression: "variables.index.matches('^[0-9]{1,3}$') ? " + shards + "[?int(variables.index)].orValue('') : ''"},
	}...)
}

// shards is an expression for the shards in the table.
const shards = "params.?data.?" + tableShards + ".orValue('').split('" + separator + "')"

// this is an expression for the resource of a request, in the form "apps/deployments".
const this = "(request.resource.group + '/' + request.resource.resource)"

// element returns the end of an expression, for an element of a list that is in a text. It is an
// empty string if there is none.
func element(separator, index string) string {
	return ".split('" + separator + "')[?" + index + "].orValue('')"
}

// keyOfMain returns an expression for a list of the key of a main object, or for an empty list: an
// object with generateName has no name yet.
func (c constants) keyOfMain() string {
	return c.key(this, "request.kind.group + '/' + request.kind.kind", namespace, "object.metadata.?name.orValue('')")
}

// keyOfChild returns an expression for a list of the key of the controller of a child, or for an
// empty list.
func (c constants) keyOfChild() string {
	const kind, name = "variables.controller[0].kind", "variables.controller[0].name"
	in := namespace
	if len(c.clusterScoped) > 0 {
		in = "(" + kind + " in " + list(c.clusterScoped) + " ? '' : " + namespace + ")"
	}
	return c.key("variables.owner", kind, in, name)
}

// namespace is an expression for the namespace of an object.
const namespace = "object.metadata.?namespace.orValue('')"

// key returns an expression for a list of the key of an object, or for an empty list. The arguments
// are expressions for the main resource, and for the kind, namespace and name of the object. With an
// optional value instead of a list, optMap would evaluate the key twice.
func (c constants) key(resource, kind, namespace, name string) string {
	key := name + " == '' ? [] : [" + kind + " + '/' + " + namespace + " + '/' + " + name + "]"
	if len(c.byNamespace) > 0 {
		key = resource + " in " + list(c.byNamespace) + " ? [" + namespace + "] : " + key
	}
	if len(c.keyLabels) > 0 {
		labels, label := "object.metadata.?labels.orValue({})", literal(c.keyLabels)+"[?"+resource+"].orValue('')"
		key = label + " in " + labels + " ? [" + labels + "[" + label + "]] : " + key
	}
	return "(" + key + ")"
}

// assigning returns the variables that the assign policy uses, and an expression for the shard of a
// new object. The variable creator is the shard that creates a child, if the table lists it: a shard
// must see the children that it creates even while their main object moves.
func (e expressions) assigning(c constants) (all []admissionregistrationv1.Variable, shard string) {
	all = e.placing(c)
	if !c.hasChildren {
		return all, "variables.placed"
	}
	return append(all, []admissionregistrationv1.Variable{
		{Name: "creator", Expression: "variables.owner != '' && " + c.isAccountIn() + " ? " + callerPod + " : ''"},
		{Name: "shard", Expression: "variables.creator != '' && variables.creator in " + shards + " ? variables.creator : variables.placed"},
	}...), "variables.shard"
}

// callerPod is an expression for the name of the pod to which the token of a request is bound. It
// is empty outside of pods.
const callerPod = "request.userInfo.?extra[?'" + podName + "'][?0].orValue('')"

// theRing is an expression that is true if a request concerns a ring.
const theRing = "request.resource.group == '" + v1alpha1.GroupName + "' && request.resource.resource == '" + RingResource + "'"

// groupOf returns an expression for the group of an owner reference.
func groupOf(owner string) string {
	return "(" + owner + ".apiVersion.contains('/') ? " + owner + ".apiVersion.split('/')[0] : '')"
}

// noRingButAProbe returns an expression that is true unless a request concerns a ring and is not a
// dry run that asks for the revision.
func (e expressions) noRingButAProbe() string {
	return "!(" + theRing + ") || has(request.dryRun) && request.dryRun && " + quote(e.shard) + " in object.metadata.?labels.orValue({})"
}

// assign returns the patch of a new object. It sets the shard label to the value of an expression,
// and removes all other sharding metadata of this ring, because metadata in a create request is a
// copy from another object. In the response to a probe, the label has the revision.
func (e expressions) assign(shard, revision string) string {
	const labels, annotations = "object.metadata.labels", "object.metadata.?annotations.orValue({})"
	isValid := isLabelValue(shard)
	return theRing + " ? [JSONPatch{op: 'replace', path: '" + LabelPath(e.shard) + "', value: " + quote(revision) + "}] :\n" +
		"(!has(" + labels + ") ? (" + isValid + " ? [JSONPatch{op: 'add', path: '/metadata/labels', value: {" + quote(e.shard) + ": " + shard + "}}] : []) :\n" +
		"(" + isValid + " ? [JSONPatch{op: 'add', path: '" + LabelPath(e.shard) + "', value: " + shard + "}] : " +
		remove(LabelPath(e.shard), quote(e.shard)+" in "+labels) + ") +\n" +
		remove(LabelPath(e.drain), quote(e.drain)+" in "+labels) + ") +\n" +
		remove("/metadata/annotations/"+escape(e.children), quote(e.children)+" in "+annotations)
}

// sticking returns the variables that the stick policy uses. The variable resource is the main
// resource of the object or of its controller, or "" for an object that does not belong to the ring.
// A shard acknowledges a drain by removing its label. Other clients do not, even if their updates omit
// the labels.
func (e expressions) sticking(c constants) []admissionregistrationv1.Variable {
	resource := this
	if c.hasChildren {
		resource = "variables.isMain ? " + this + " : variables.owner"
	}
	return append(e.placing(c), []admissionregistrationv1.Variable{
		{Name: "resource", Expression: resource},
		{Name: "shard", Expression: e.former()},
		{Name: "target", Expression: before(e.drain)},
		{Name: "draining", Expression: e.isDraining()},
		{Name: "acknowledged", Expression: "variables.resource != '' && variables.shard != '' && variables.target != ''" +
			" && " + c.isShard("variables.shard", "variables.draining")},
		{Name: "parked", Expression: "variables.acknowledged && variables.draining && variables.resource in " + list(c.controlling)},
		{Name: "moved", Expression: "variables.acknowledged && !variables.parked"},
		{Name: "setShard", Expression: "variables.resource == '' || variables.parked ? '' : variables.moved ? variables.target" +
			" : variables.shard != '' ? variables.shard : variables.target == '' && !variables.draining ? variables.placed : ''"},
		{Name: "setDrain", Expression: "variables.resource == '' || variables.moved ? '' : variables.target"},
	}...)
}

// former returns an expression for the shard of an object before an update.
func (e expressions) former() string { return before(e.shard) }

// before returns an expression for the value of a label before an update, or an empty string.
func before(label string) string {
	return "oldObject.metadata.?labels[?" + quote(label) + "].orValue('')"
}

// isDraining returns an expression that is true if an object has the label drain after an update.
func (e expressions) isDraining() string {
	return quote(e.drain) + " in object.metadata.?labels.orValue({})"
}

// stick returns the patch for an object that has no shard after an update.
func (e expressions) stick() string {
	return e.set("variables.setShard", "variables.setDrain") + " +\n" +
		remove(LabelPath(e.drain), "variables.moved && variables.draining")
}

// set returns operations that set the labels to the values of two expressions, except the ones that
// are no valid values, such as an empty string.
func (e expressions) set(shard, drain string) string {
	return "((" + isLabelValue(shard) + " || " + isLabelValue(drain) + ") && !has(object.metadata.labels) ? [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}] : []) +\n" +
		addLabel(e.shard, shard) + " +\n" + addLabel(e.drain, drain)
}

func addLabel(label, value string) string {
	return "(" + isLabelValue(value) + " ? [JSONPatch{op: 'add', path: '" + LabelPath(label) + "', value: " + value + "}] : [])"
}

// remove returns an operation that removes the value at a path if a condition is true.
func remove(path, condition string) string {
	return "(" + condition + " ? [JSONPatch{op: 'remove', path: '" + path + "'}] : [])"
}

// isLabelValue returns an expression that is true if a value is a valid label value, and not empty.
// It is needed because failure policy Ignore does not cover a patch with an invalid result.
func isLabelValue(value string) string {
	return value + ".matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')"
}

// LabelPath returns the JSON pointer of a label.
func LabelPath(label string) string { return "/metadata/labels/" + escape(label) }

// escape escapes a key for a JSON pointer. Label keys contain no tildes.
func escape(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// literal returns a map literal. It is sorted, so that equal maps make equal policies.
func literal(of map[string]string) string {
	all := make([]string, 0, len(of))
	for _, key := range sortedKeys(of) {
		all = append(all, quote(key)+": "+quote(of[key]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func sortedKeys(of map[string]string) []string { return slices.Sorted(maps.Keys(of)) }

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
