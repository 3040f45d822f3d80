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
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
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

// Webhook is the field manager of the fields that the webhook sets when a Node is created. If it
// replaces a value of the request, the creator owns that key as well, because the API server
// records the creator's fields before it calls webhooks.
const Webhook = fieldmanagers.Webhook

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

// keysOf returns the keys of a Node's labels for which isKept is true, with or without the marker.
// It excludes keys that exist only in managedFields, because anyone who may patch the Node can
// write them.
func keysOf(n *metav1.ObjectMeta, withMarker bool, isKept func(key string) bool) labels.Keys {
	return allKeysOf(n, withMarker, isKept).Bounded()
}

// allKeysOf is keysOf for a set of any size, which is not stored.
func allKeysOf(n *metav1.ObjectMeta, withMarker bool, isKept func(key string) bool) labels.Keys {
	return labels.AllKeysOf(func(yield func(string) bool) {
		for key := range n.Labels {
			if (withMarker || key != labels.Marker) && isKept(key) && !yield(key) {
				return
			}
		}
	})
}

// unknownSetters are the field managers that the API server uses for fields whose setters it no
// longer records, the oldest of more than ten (capmanagers.go in
// k8s.io/apimachinery/pkg/util/managedfields/internal), or never recorded, from before
// managedFields existed (buildmanagerinfo.go and skipnonapplied.go there).
var unknownSetters = map[string]bool{"ancient-changes": true, "before-first-apply": true}

// Ownership records who owns the labels of a Node, as far as its managedFields and annotations show
// that. Labels include the preserved annotations and taints.
type Ownership struct {
	// Machine are the keys of labels set only by the machine's agents. Unclear are the keys whose
	// setter the API server no longer records.
	Machine, Unclear labels.Keys
	// ActedAt is when agents last set anything except the status, in whole seconds; zero if never.
	ActedAt time.Time
	// Claimed are the keys that annotations name as a controller's, see [claims], also if a person has
	// changed or removed them. To look a taint up, use [Ownership.Claims].
	Claimed labels.Keys
	// Admitted are the keys, the marker among them, that only the webhook has set: they were not in
	// the request to create the Node, and have not been set since, not even to the same value.
	Admitted labels.Keys
	// Edited are the keys of labels and annotations that users have set since the Node was created, as
	// far as managedFields show that: they have the last time of each manager, in whole seconds. If a
	// processor or the webhook has restored labels onto this incarnation, the marker is among the keys,
	// and so is a marker whose setter the API server no longer records. The marker of a closed gate is
	// not, nor one in the request to create the Node. The set may be larger than [labels.MaxKeysBytes].
	Edited labels.Keys
	// Owners are the field managers of the labels that are not the machine's.
	Owners fieldmanagers.Owners
}

// Claims reports whether an annotation names a label, an annotation or a taint as a controller's.
// Some controllers name the key of a taint without its effect.
func (o Ownership) Claims(key string) bool {
	return o.Claimed.Has(key) || o.Claimed.Has(anyEffect(key))
}

// Of returns the owners of a Node's labels. A label without any manager is unclear, because its
// managedFields were reset. If an entry cannot be read, as one of a future format, every label is
// unclear and none is the webhook's. Labels that a kubelet may not set are never the machine's,
// because a kubelet can claim them in managedFields. What a controller claims is the machine's
// whoever owns it there, see [claims].
func (m Managers) Of(n *metav1.ObjectMeta) Ownership {
	f, o := m.read(n), Ownership{}
	var claims map[string]bool
	if !m.isEmpty() {
		claims = claimed(n)
	}
	isOfController := func(key string) bool { return isClaimed(claims, key) }
	if len(claims) > 0 { // most Nodes have none
		o.Claimed = labels.KeysOf(maps.Keys(claims))
	}
	o.ActedAt = f.latest
	if f.isAllReadable && len(f.webhook) > 0 {
		o.Admitted = keysOf(n, true, func(key string) bool {
			return f.webhook[key] && !f.agents[key] && !f.others[key] && !f.unknown[key]
		})
	}
	if !f.isReadable {
		o.Edited = keysOf(n, true, func(key string) bool { return key == labels.Marker && n.Labels[key] != labels.Pending })
		o.Machine = keysOf(n, false, isOfController)
		o.Unclear = keysOf(n, false, func(key string) bool { return !isOfController(key) })
		return o
	}
	o.Edited = allKeysOf(n, true, func(key string) bool { return f.edited[key] && !isOfController(key) })
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
	o.Machine = keysOf(n, false, isAgents)
	o.Unclear = keysOf(n, false, func(key string) bool {
		return !isAgents(key) && (labels.IsTaint(key) || !f.agents[key] && !f.others[key] && !labels.NodeRestriction(key))
	})
	o.Owners = usersOf(n, f.entries, func(key string) bool { return !isAgents(key) })
	return o
}

// usersOf returns the owners of the labels for which isUsers is true, except agents and unknown
// setters, but with nodekeeper.
func usersOf(n *metav1.ObjectMeta, entries []entry, isUsers func(key string) bool) fieldmanagers.Owners {
	var users []fieldmanagers.Owner
	for _, e := range entries {
		if e.isAgents || e.isUnknown || e.isUnnamed || len(e.keys) == 0 || e.Subresource != "" {
			continue
		}
		owned := keysOf(n, false, func(key string) bool { return e.keys[fieldOf(key)] && isUsers(key) })
		users = append(users, fieldmanagers.Owner{Manager: e.Manager, Operation: e.Operation, Keys: owned})
	}
	return fieldmanagers.Of(users)
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
func (m Managers) read(n *metav1.ObjectMeta) ownedFields {
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
func (m Managers) entriesOf(n *metav1.ObjectMeta, readsUnknown bool) []entry {
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
