// Package agents reports which labels of a Node the machine's own agents set. Agents are the
// kubelet, a cloud controller manager and other programs that describe the machine, and that do so
// again when another machine takes the name. Kubernetes records the setter of a label in
// metadata.managedFields. The package is pure.
package agents

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/owners"
)

// Managers are the field managers that agents use. The zero value has none, which means that users
// set every label. It is immutable and safe for concurrent use.
type Managers struct {
	exact    map[string]bool
	prefixes []string
}

// Parse parses a comma-separated list of field managers: exact names, or prefixes followed by *.
// Spaces around a name and empty names are ignored.
func Parse(list string) (Managers, error) {
	m := Managers{exact: map[string]bool{}}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		prefix, isPrefix := strings.CutSuffix(name, "*")
		switch {
		case name == "":
		case strings.ContainsAny(prefix, "* \t="):
			return Managers{}, fmt.Errorf("unreadable name %q: use the name of a field manager, or a prefix and *", name)
		case prefix == "":
			return Managers{}, fmt.Errorf("%q would attribute every label to the machine, including those that users set, so nothing would be restored", name)
		case isPrefix:
			m.prefixes = append(m.prefixes, prefix)
		default:
			m.exact[name] = true
		}
	}
	return m, nil
}

// isEmpty reports whether no field manager is an agent.
func (m Managers) isEmpty() bool { return len(m.exact) == 0 && len(m.prefixes) == 0 }

// match reports whether a field manager is an agent.
func (m Managers) match(name string) bool {
	if m.exact[name] {
		return true
	}
	for _, prefix := range m.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// In-memory annotations that hold the contents of managedFields.
const (
	machineAnnotation  = "nodekeeper.dev/machine-labels"
	unclearAnnotation  = "nodekeeper.dev/unclear-labels"
	actedAtAnnotation  = "nodekeeper.dev/machine-acted-at"
	admittedAnnotation = "nodekeeper.dev/admitted-labels"
	claimedAnnotation  = "nodekeeper.dev/claimed-labels"
)

// Webhook is the field manager of the fields that the webhook sets when a Node is created. If it
// replaces a value of the request, the creator owns that key as well, because the API server
// records the creator's fields before it calls webhooks.
const Webhook = owners.Webhook

// Stamp stores in a Node's annotations, in memory only, which of its labels agents set, and when
// they last set anything. [Machine], [Unclear], [Withdrawn] and [Removed] read these annotations.
// Earlier values are replaced.
func (m Managers) Stamp(n *metav1.PartialObjectMetadata) {
	w := m.owners(n)
	Note(n, w.machine, w.unclear, w.actedAt)
	NoteAdmitted(n, w.admitted) // anyone who may patch the Node can set the annotations
	note(n, claimedAnnotation, w.claimed)
	NoteEdited(n, w.edited)
	owners.Note(n, w.users)
}

// Admitted returns the keys of the labels of a stamped Node that only the webhook has set: they were
// not in the request to create the Node, and have not been set since, not even to the same value.
func Admitted(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[admittedAnnotation])
}

// OwnedByWebhook returns the index of the webhook's entry, -1 if there is none, and the keys of the
// labels and annotations that it owns, with [AllTaints] if it owns the list. If the entry is
// unreadable, the webhook owns no keys.
func OwnedByWebhook(entries []metav1.ManagedFieldsEntry) (at int, owned map[string]bool) {
	if at = webhooksEntry(entries); at >= 0 {
		owned, _ = collect(entries[at], memberNames)
	}
	return at, owned
}

// webhooksEntry returns the index of the webhook's entry, or -1 if there is none.
func webhooksEntry(entries []metav1.ManagedFieldsEntry) int {
	return slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == Webhook })
}

// Note is like [Managers.Stamp] for callers that know the owners without managedFields.
func Note(n *metav1.PartialObjectMetadata, machine, unclear labels.Keys, actedAt string) {
	for key, value := range map[string]string{
		machineAnnotation: string(machine), unclearAnnotation: string(unclear), actedAtAnnotation: actedAt,
	} {
		if delete(n.Annotations, key); value == "" {
			continue
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = value
	}
}

// NoteAdmitted is like [Managers.Stamp] for [Admitted], for callers that know the keys without
// managedFields.
func NoteAdmitted(n *metav1.PartialObjectMetadata, keys labels.Keys) {
	note(n, admittedAnnotation, keys)
}

// note stores keys in an annotation, or removes it if there are none.
func note(n *metav1.PartialObjectMetadata, annotation string, keys labels.Keys) {
	if delete(n.Annotations, annotation); keys != "" {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotation, string(keys))
	}
}

// Machine returns the keys of the labels of a stamped Node that only agents own.
func Machine(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[machineAnnotation])
}

// Unclear returns the keys of the labels of a stamped Node whose setter the API server no longer
// records.
func Unclear(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[unclearAnnotation])
}

// Withdrawn returns the keys of labels that disappeared between two consecutive states of a stamped
// Node in which agents wrote to it, so that the agents may have removed their labels themselves.
// The API server does not record who removed a label, and its times are whole seconds. If there is
// no sign that an agent wrote, the result is empty: a user removed them. The result includes taints
// whose value changed, because the API server does not record who changed a taint. A controller
// that no longer claims a label has withdrawn it.
func Withdrawn(before, after *metav1.PartialObjectMetadata) labels.Keys {
	if !haveWritten(before, after) {
		return gone(unclaimed(before, after), before, after)
	}
	return gone(Machine(before).Union(Unclear(before)), before, after)
}

// unclaimed returns the machine's labels that a controller claimed and no longer claims.
func unclaimed(before, after *metav1.PartialObjectMetadata) labels.Keys {
	had, has := labels.Keys(before.Annotations[claimedAnnotation]), labels.Keys(after.Annotations[claimedAnnotation])
	if had == has {
		return ""
	}
	left := had.Without(has).Set()
	return Machine(before).Where(func(key string) bool { return left[key] })
}

// Removed returns the keys of the machine's labels that disappeared between two consecutive states
// of a stamped Node, except those that agents may have withdrawn: a user removed them. It includes
// taints whose value changed, and taints whose setter is unknown.
func Removed(before, after *metav1.PartialObjectMetadata) labels.Keys {
	if haveWritten(before, after) {
		return ""
	}
	return gone(Machine(before).Union(Unclear(before).Taints()).Without(unclaimed(before, after)), before, after)
}

// gone returns the keys that are absent from after, and those of taints whose value differs.
func gone(keys labels.Keys, before, after *metav1.PartialObjectMetadata) labels.Keys {
	return keys.Where(func(key string) bool {
		value, isThere := after.Labels[key]
		return !isThere || labels.IsTaint(key) && value != before.Labels[key]
	})
}

// keysOf returns the keys of a Node's labels for which isKept is true, with or without the marker.
// It excludes keys that exist only in managedFields, because anyone who may patch the Node can
// write them.
func keysOf(n *metav1.PartialObjectMetadata, withMarker bool, isKept func(key string) bool) labels.Keys {
	return labels.KeysOf(func(yield func(string) bool) {
		for key := range n.Labels {
			if (withMarker || key != labels.Marker) && isKept(key) && !yield(key) {
				return
			}
		}
	})
}

// haveWritten reports whether agents have written to a Node between two states of it. Earlier times
// in the later state mean that the API server has dropped a manager.
func haveWritten(before, after *metav1.PartialObjectMetadata) bool {
	if after.Annotations[actedAtAnnotation] > before.Annotations[actedAtAnnotation] { // RFC 3339, in UTC
		return true
	}
	for key := range Machine(after).All() { // in the same second
		if value, wasThere := before.Labels[key]; !wasThere || value != after.Labels[key] {
			return true
		}
	}
	return false
}

// unknownSetters are the field managers that the API server uses for fields whose setters it no
// longer records, the oldest of more than ten (capmanagers.go in
// k8s.io/apimachinery/pkg/util/managedfields/internal), or never recorded, from before
// managedFields existed (buildmanagerinfo.go and skipnonapplied.go there).
var unknownSetters = map[string]bool{"ancient-changes": true, "before-first-apply": true}

// ownership records who owns the labels of a Node.
type ownership struct {
	// machine are the keys that only agents own, unclear those with an unknown setter.
	machine, unclear labels.Keys
	// actedAt is when agents last set anything except the status.
	actedAt string
	// admitted are the keys that the webhook has set, and no one since.
	admitted labels.Keys
	// edited are the keys that users have set since the Node was created, and the marker if it was
	// set by a restore.
	edited labels.Keys
	// claimed are the keys that controllers claim in annotations, see [claims].
	claimed labels.Keys
	// users are the owners of the labels that are not the machine's.
	users owners.Owners
}

// owners returns the owners of a Node's labels. A label without any manager is unclear, because its
// managedFields were reset. If an entry cannot be read, as one of a future format, every label is
// unclear and none is the webhook's. Labels that a kubelet may not set are never the machine's,
// because a kubelet can claim them in managedFields. What a controller claims is the machine's
// whoever owns it there.
func (m Managers) owners(n *metav1.PartialObjectMetadata) ownership {
	f, o := m.read(n), ownership{}
	var claims map[string]bool
	if !m.isEmpty() {
		claims = claimed(n)
	}
	isOfController := func(key string) bool { return isClaimed(claims, key) }
	if len(claims) > 0 { // most Nodes have none
		o.claimed = labels.KeysOf(maps.Keys(claims))
	}
	if !f.latest.IsZero() {
		o.actedAt = f.latest.UTC().Format(time.RFC3339)
	}
	if f.isAllReadable && len(f.webhook) > 0 {
		o.admitted = keysOf(n, true, func(key string) bool {
			return f.webhook[key] && !f.agents[key] && !f.others[key] && !f.unknown[key]
		})
	}
	if !f.isReadable {
		o.machine = keysOf(n, false, isOfController)
		o.unclear = keysOf(n, false, func(key string) bool { return !isOfController(key) })
		return o
	}
	o.edited = keysOf(n, true, func(key string) bool { return f.edited[key] && !isOfController(key) })
	if m.match(Webhook) {
		maps.Copy(f.agents, f.webhook)
	} else {
		maps.Copy(f.others, f.webhook)
	}
	isAgents := func(key string) bool {
		if isOfController(key) {
			return true
		}
		key = fieldOf(key)
		return f.agents[key] && !f.others[key] && !labels.NodeRestriction(key)
	}
	o.machine = keysOf(n, false, isAgents)
	o.unclear = keysOf(n, false, func(key string) bool {
		return !isAgents(key) && (labels.IsTaint(key) || !f.agents[key] && !f.others[key] && !labels.NodeRestriction(key))
	})
	o.users = usersOf(n, f.entries, func(key string) bool { return !isAgents(key) })
	return o
}

// usersOf returns the owners of the labels for which isUsers is true, except agents and unknown
// setters, but with nodekeeper.
func usersOf(n *metav1.PartialObjectMetadata, entries []entry, isUsers func(key string) bool) owners.Owners {
	var users []owners.Owner
	for _, e := range entries {
		if e.isAgents || e.isUnknown || e.isUnnamed || len(e.keys) == 0 || e.Subresource != "" {
			continue
		}
		owned := keysOf(n, false, func(key string) bool { return e.keys[fieldOf(key)] && isUsers(key) })
		users = append(users, owners.Owner{Manager: e.Manager, Operation: e.Operation, Keys: owned})
	}
	return owners.Of(users)
}

// fieldOf returns the key under which [collect] returns the owned field of a key.
func fieldOf(key string) string {
	if labels.IsTaint(key) {
		return AllTaints
	}
	return key
}

// ownedFields are the keys owned by agents, the webhook, [unknownSetters] and all others. Without
// an entry of the webhook, unknown and webhook are nil.
type ownedFields struct {
	entries []entry

	agents, webhook, unknown, others map[string]bool
	// edited are those among others that were set since the Node was created, and the marker if a
	// restore set it.
	edited map[string]bool
	// latest is when agents last set anything except the status.
	latest time.Time
	// isReadable reports whether all entries except those of unknown setters could be read,
	// isAllReadable whether these could be read, too.
	isReadable, isAllReadable bool
}

// read parses each entry of a Node's managedFields once.
func (m Managers) read(n *metav1.PartialObjectMetadata) ownedFields {
	f := ownedFields{agents: map[string]bool{}, others: map[string]bool{}, isReadable: true, isAllReadable: true}
	at := webhooksEntry(n.ManagedFields)
	if at >= 0 {
		f.webhook, f.unknown = map[string]bool{}, map[string]bool{}
	}
	f.entries = m.entriesOf(n, at >= 0)
	for i, e := range f.entries {
		if e.err != nil {
			f.isReadable, f.isAllReadable = f.isReadable && e.isUnknown, false
		}
		if e.isAgents && e.Subresource == "" && e.Time != nil && e.Time.After(f.latest) {
			f.latest = e.Time.Time
		}
		switch {
		case e.isUnnamed:
			f.assign(e.keys, e.ManagedFieldsEntry, n.CreationTimestamp)
		case e.isUnknown && at < 0:
		case e.isUnknown:
			maps.Copy(f.unknown, e.keys)
		case i == at:
			maps.Copy(f.webhook, e.keys)
		case e.isAgents:
			maps.Copy(f.agents, e.keys)
		default:
			maps.Copy(f.others, e.keys)
		}
	}
	f.edited = editedIn(f.entries, at, n)
	return f
}

// entry is a parsed entry of managedFields.
type entry struct {
	metav1.ManagedFieldsEntry

	// isUnknown reports whether it is one of [unknownSetters], and isUnnamed whether it may be that
	// of a kubelet without a name.
	isUnknown, isUnnamed, isAgents bool
	// keys are those that it owns, and err reports that they cannot be read.
	keys map[string]bool
	err  error
}

// entriesOf parses the entries of a Node's managedFields. It reads those of unknown setters only if
// they matter.
func (m Managers) entriesOf(n *metav1.PartialObjectMetadata, readsUnknown bool) []entry {
	relevant := memberNames[:1]
	for key := range n.Labels {
		if !labels.IsLabel(key) {
			relevant = memberNames
			break
		}
	}
	entries := make([]entry, len(n.ManagedFields))
	for i, managed := range n.ManagedFields {
		e := entry{ManagedFieldsEntry: managed, isUnknown: unknownSetters[managed.Manager], isUnnamed: m.isUnnamed(managed)}
		e.isAgents = !e.isUnknown && m.match(managed.Manager)
		members := relevant
		if e.isAgents {
			members = memberNames // for [registers]
		}
		if !e.isUnknown || readsUnknown {
			e.keys, e.err = collect(managed, members)
		}
		entries[i] = e
	}
	return entries
}

// AllTaints is the key that stands for all taints of a Node: in managedFields they are one list,
// owned by its last writer.
const AllTaints = "taints"

// fields are the relevant members of an entry of managedFields. Each owned label or annotation has
// a member "f:" followed by its key, and "." stands for the map itself. Taints have a single
// member, for the whole list.
type fields struct {
	Metadata struct {
		Labels      map[string]struct{} `json:"f:labels"`
		Annotations map[string]struct{} `json:"f:annotations"`
	} `json:"f:metadata"`
	Spec struct {
		Taints *struct{} `json:"f:taints"`
	} `json:"f:spec"`
}

// memberNames are the names of these members. If a Node's view contains only labels, only the first
// is relevant.
var memberNames = []string{`"f:labels"`, `"f:annotations"`, `"f:taints"`}

// collect returns the keys of the labels and annotations that an entry owns, and AllTaints if it
// owns the list. It skips entries without any of the members.
func collect(managed metav1.ManagedFieldsEntry, members []string) (map[string]bool, error) {
	if managed.FieldsV1 == nil || !slices.ContainsFunc(members, func(name string) bool { return strings.Contains(managed.FieldsV1.GetRawString(), name) }) {
		return nil, nil //nolint:nilnil // most entries have none, and need no parsing
	}
	var reported fields
	if err := json.Unmarshal([]byte(managed.FieldsV1.GetRawString()), &reported); err != nil {
		return nil, fmt.Errorf("reading the fields of manager %q: %w", managed.Manager, err)
	}
	keys := make(map[string]bool, len(reported.Metadata.Labels)+len(reported.Metadata.Annotations)+1)
	for field := range reported.Metadata.Labels {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys[key] = true
		}
	}
	for field := range reported.Metadata.Annotations {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys[labels.AnnotationKey(key)] = true
		}
	}
	if reported.Spec.Taints != nil {
		keys[AllTaints] = true
	}
	return keys, nil
}
