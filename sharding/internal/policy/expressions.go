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
// table. The results are:
//
//   - resource: the main resource of the object or of its controller, in the form "apps/deployments",
//     or "" for an object that does not belong to the ring
//   - placed: the name of the shard, "" if there is none
func (e expressions) placing(c constants) []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "this", Expression: "request.resource.group + '/' + request.resource.resource"},
		{Name: "labels", Expression: "object.metadata.?labels.orValue({})"},
		{Name: "isMain", Expression: "variables.this in " + list(c.mains)},
		{Name: "controller", Expression: "variables.isMain ? [] : object.metadata.?ownerReferences.orValue([])" +
			".filter(o, o.?controller.orValue(false))" +
			".map(o, {'name': string(o.name), 'kind': " + groupOf("o") + " + '/' + o.kind})"},
		{Name: "owner", Expression: "size(variables.controller) == 0 ? '' : " + literal(c.owners) + "[?(variables.controller[0].kind + ' ' + variables.this)].orValue('')"},
		{Name: "isChild", Expression: "variables.owner != ''"},
		{Name: "resource", Expression: "variables.isMain ? variables.this : variables.owner"},
		{Name: "keyLabel", Expression: literal(c.keyLabels) + "[?variables.resource].orValue('')"},
		{Name: "by", Expression: "variables.resource == '' ? 'nothing'" +
			" : variables.keyLabel != '' && variables.keyLabel in variables.labels ? 'label'" +
			" : variables.resource in " + list(c.byNamespace) + " ? 'namespace' : 'name'"},
		{Name: "kind", Expression: "variables.isChild ? variables.controller[0].kind : request.kind.group + '/' + request.kind.kind"},
		{Name: "inNamespace", Expression: "variables.isChild && variables.kind in " + list(c.clusterScoped) + " ? '' : object.metadata.?namespace.orValue('')"},
		// An object with generateName has no name yet.
		{Name: "name", Expression: "variables.isChild ? variables.controller[0].name : object.metadata.?name.orValue('')"},
		{Name: "key", Expression: "variables.by == 'label' ? variables.labels[variables.keyLabel]" +
			" : variables.by == 'namespace' ? variables.inNamespace" +
			" : variables.kind + '/' + variables.inNamespace + '/' + variables.name"},
		{Name: "hasKey", Expression: "variables.by != 'nothing' && (variables.by != 'name' || variables.name != '') && size(variables.key) <= " + strconv.Itoa(maxKey)},
		{Name: "shards", Expression: "params.?data.?" + tableShards + ".orValue('').split('" + separator + "')"},
		{Name: "slots", Expression: "params.?data.?" + tableSlots + ".orValue('').split('" + separator + "')"},
		{Name: "at", Expression: "variables.hasKey && size(variables.slots) == 1024 ? variables.slots[" + slots.CEL("variables.key") + "] : ''"},
		// Other clients can edit the table.
		{Name: "index", Expression: "variables.at.matches('^[0-9]{1,3}$') ? int(variables.at) : -1"},
		{Name: "placed", Expression: validLabel("variables.index >= 0 && variables.index < size(variables.shards) ? variables.shards[variables.index] : ''")},
		{Name: "isAccount", Expression: c.isAccount()},
	}
}

// assigning returns the variables that the assign policy uses in addition to those of placing. The
// variable creator is the shard that creates a child, if the table lists it: a shard must see the
// children that it creates even while their main object moves.
func (e expressions) assigning() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "probe", Expression: theRing},
		{Name: "creator", Expression: "variables.isChild && variables.isAccount ? " + callerPod + " : ''"},
		{Name: "shard", Expression: "variables.creator != '' && variables.creator in variables.shards ? " + validLabel("variables.creator") + " : variables.placed"},
	}
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

// assign returns the patch of a new object. It sets the shard label and removes all other sharding
// metadata of this ring, because metadata in a create request is a copy from another object.
func (e expressions) assign() string {
	return "variables.probe ? [JSONPatch{op: 'replace', path: '" + LabelPath(e.shard) + "', value: variables.revision}] :\n" +
		e.set("variables.shard", "") + " +\n" +
		remove(LabelPath(e.shard), "variables.shard == '' && "+quote(e.shard)+" in variables.labels") + " +\n" +
		remove(LabelPath(e.drain), quote(e.drain)+" in variables.labels") + " +\n" +
		remove("/metadata/annotations/"+escape(e.children), quote(e.children)+" in object.metadata.?annotations.orValue({})")
}

// sticking returns the variables that the stick policy uses in addition to those of placing. A
// shard acknowledges a drain by removing its label. Other clients do not, even if their updates omit
// the labels.
func (e expressions) sticking(c constants) []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "ours", Expression: "variables.resource != ''"},
		{Name: "shard", Expression: e.former()},
		{Name: "target", Expression: before(e.drain)},
		{Name: "draining", Expression: e.isDraining()},
		{Name: "acknowledged", Expression: "variables.ours && variables.shard != '' && variables.target != ''" +
			" && " + c.isShard("variables.shard", "variables.draining")},
		{Name: "parked", Expression: "variables.acknowledged && variables.draining && variables.resource in " + list(c.controlling)},
		{Name: "moved", Expression: "variables.acknowledged && !variables.parked"},
		{Name: "setShard", Expression: "!variables.ours || variables.parked ? '' : variables.moved ? variables.target" +
			" : variables.shard != '' ? variables.shard : variables.target == '' && !variables.draining ? variables.placed : ''"},
		{Name: "setDrain", Expression: "!variables.ours || variables.moved ? '' : variables.target"},
	}
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

// set returns operations that set the labels to the values of two expressions. The expression for
// drain may be "". A label whose expression evaluates to an empty string is not set.
func (e expressions) set(shard, drain string) string {
	some, add := shard+" != ''", addLabel(e.shard, shard)
	if drain != "" {
		some += " || " + drain + " != ''"
		add += " +\n" + addLabel(e.drain, drain)
	}
	return "((" + some + ") && !has(object.metadata.labels) ? [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}] : []) +\n" + add
}

func addLabel(label, value string) string {
	return "(" + value + " == '' ? [] : [JSONPatch{op: 'add', path: '" + LabelPath(label) + "', value: " + value + "}])"
}

// remove returns an operation that removes the value at a path if a condition is true.
func remove(path, condition string) string {
	return "(" + condition + " ? [JSONPatch{op: 'remove', path: '" + path + "'}] : [])"
}

// validLabel returns an expression that evaluates to a value if it is a valid label value, and to an
// empty string otherwise. It is needed because failure policy Ignore does not cover a patch with an
// invalid result.
func validLabel(value string) string {
	return "[" + value + "].filter(v, !format.labelValue().validate(v).hasValue())[?0].orValue('')"
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
