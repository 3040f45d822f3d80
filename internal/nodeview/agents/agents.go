// Package agents reports which labels of a Node the machine's own agents set: the kubelet, a cloud
// controller manager and others that describe the machine by themselves, and do so again when
// another machine takes the name. Kubernetes says who set a label, in metadata.managedFields. The
// package is pure.
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
)

// Managers are the names of the field managers by which agents write. The zero value has none: then
// people set every label. It is immutable and safe for concurrent use.
type Managers struct {
	exact    map[string]bool
	prefixes []string
}

// Parse reads a list of names of field managers, separated by commas: exact ones, or prefixes with
// a * behind them. Space around a name is ignored, and so is an empty one: "" has none.
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
			return Managers{}, fmt.Errorf("%q would make every label the machine's, including those that people set, so nothing would be restored", name)
		case isPrefix:
			m.prefixes = append(m.prefixes, prefix)
		default:
			m.exact[name] = true
		}
	}
	return m, nil
}

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

// The annotations by which a Node in memory keeps what managedFields says.
const (
	machineAnnotation  = "nodekeeper.dev/machine-labels"
	unclearAnnotation  = "nodekeeper.dev/unclear-labels"
	actedAtAnnotation  = "nodekeeper.dev/machine-acted-at"
	admittedAnnotation = "nodekeeper.dev/admitted-labels"
)

// Webhook is the field manager of what the webhook sets on a Node when it is created. If it replaces
// a value of the request, the creator owns that key as well: the API server notes who created the
// Node before it asks webhooks.
const Webhook = "nodekeeper-webhook"

// Stamp notes in a Node's annotations, in memory only, which of its labels agents set, and when
// these last set anything: [Machine], [Unclear], [Withdrawn] and [Removed] read that. What the
// annotations said of it before does not count.
func (m Managers) Stamp(n *metav1.PartialObjectMetadata) {
	w := m.whose(n)
	Note(n, w.machine, w.unclear, w.actedAt)
	NoteAdmitted(n, w.admitted) // whoever may patch the Node can write the annotation
}

// Admitted returns the keys of the labels of a stamped Node that the webhook put onto it when it
// was created, and that nobody else owns: neither did the request have the key, nor has anybody set
// it since, not even to the same value.
func Admitted(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[admittedAnnotation])
}

// OwnedByWebhook returns the index of the webhook's entry, -1 if there is none, and the keys of the
// labels and annotations that it owns, with [AllTaints] if it owns the list. If the entry cannot be
// read, no key is the webhook's.
func OwnedByWebhook(entries []metav1.ManagedFieldsEntry) (at int, owned map[string]bool) {
	at = webhooksEntry(entries)
	owned = map[string]bool{}
	if at >= 0 && collect(entries[at], memberNames, owned) != nil {
		return at, nil
	}
	return at, owned
}

// webhooksEntry returns the index of the webhook's entry, -1 if there is none.
func webhooksEntry(entries []metav1.ManagedFieldsEntry) int {
	return slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == Webhook })
}

// Note does what [Managers.Stamp] does, with what the caller knows without managedFields.
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

// NoteAdmitted does what [Managers.Stamp] does about [Admitted], with what the caller knows without
// managedFields.
func NoteAdmitted(n *metav1.PartialObjectMetadata, keys labels.Keys) {
	if delete(n.Annotations, admittedAnnotation); keys != "" {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, admittedAnnotation, string(keys))
	}
}

// Machine returns the keys of the labels of a stamped Node that agents set, and nobody else.
func Machine(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[machineAnnotation])
}

// Unclear returns the keys of the labels of a stamped Node of which the API server does not say any
// more who set them.
func Unclear(n *metav1.PartialObjectMetadata) labels.Keys {
	return labels.Keys(n.Annotations[unclearAnnotation])
}

// Withdrawn returns the keys of the labels that are gone between two consecutive states of a
// stamped Node in which agents have written to it, so that these may have taken their labels back
// themselves. The API server does not say who removed a label, and its times are whole seconds. If
// nothing shows that an agent wrote, the result is empty: then a person removed what is gone. The
// result includes taints whose value changed, since the API server does not say who changed one.
func Withdrawn(before, after *metav1.PartialObjectMetadata) labels.Keys {
	if !haveWritten(before, after) {
		return ""
	}
	return gone(Machine(before).Union(Unclear(before)), before, after)
}

// Removed returns the keys of the labels of the machine that are gone between two consecutive
// states of a stamped Node, but for those that agents may have withdrawn: a person removed them. It
// includes taints whose value changed, and taints of which it is unclear who set them.
func Removed(before, after *metav1.PartialObjectMetadata) labels.Keys {
	if haveWritten(before, after) {
		return ""
	}
	return gone(Machine(before).Union(Unclear(before).Taints()), before, after)
}

// gone returns those of keys that are absent from after, and those of taints whose value differs.
func gone(keys labels.Keys, before, after *metav1.PartialObjectMetadata) labels.Keys {
	return keys.Where(func(key string) bool {
		value, isThere := after.Labels[key]
		return !isThere || labels.IsTaint(key) && value != before.Labels[key]
	})
}

// keysOf returns the keys of a Node's labels, with the marker or without it, for which isKept is
// true. Keys that are only in managedFields, which whoever may patch the Node can write, are not
// among them.
func keysOf(n *metav1.PartialObjectMetadata, withMarker bool, isKept func(key string) bool) labels.Keys {
	return labels.KeysOf(func(yield func(string) bool) {
		for key := range n.Labels {
			if (withMarker || key != labels.Marker) && isKept(key) && !yield(key) {
				return
			}
		}
	})
}

// haveWritten reports whether agents have written to a Node between two states of it. Times that
// become earlier mean that the API server has forgotten a manager.
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

// nobody are the field managers by which the API server owns what others have set: the oldest of
// more than ten (capmanagers.go in k8s.io/apimachinery/pkg/util/managedfields/internal), and those
// of before managedFields was there (buildmanagerinfo.go and skipnonapplied.go there).
var nobody = map[string]bool{"ancient-changes": true, "before-first-apply": true}

// owners say whose the labels of a Node are.
type owners struct {
	// machine are the keys that agents set, and nobody else, and unclear those of which it is unknown
	// who did.
	machine, unclear labels.Keys
	// actedAt is when agents last set anything but the status.
	actedAt string
	// admitted are the keys that the webhook owns, and nobody else.
	admitted labels.Keys
}

// whose returns the owners of a Node's labels. A label that no manager owns is unclear: somebody has
// reset managedFields. So is every label if an entry cannot be read, as one of a format to come, and
// none is the webhook's then. What no kubelet may set is never the machine's: a kubelet may write
// into managedFields that it has set it.
func (m Managers) whose(n *metav1.PartialObjectMetadata) owners {
	f, o := m.read(n), owners{}
	if !f.latest.IsZero() {
		o.actedAt = f.latest.UTC().Format(time.RFC3339)
	}
	if f.isAllReadable && len(f.webhooks) > 0 {
		o.admitted = keysOf(n, true, func(key string) bool { return f.webhooks[key] && !f.mine[key] && !f.theirs[key] && !f.nobodys[key] })
	}
	if !f.isReadable {
		o.unclear = keysOf(n, false, func(string) bool { return true })
		return o
	}
	if m.match(Webhook) {
		maps.Copy(f.mine, f.webhooks)
	} else {
		maps.Copy(f.theirs, f.webhooks)
	}
	isMine := func(key string) bool {
		if labels.IsTaint(key) {
			key = AllTaints
		}
		return f.mine[key] && !f.theirs[key] && !labels.NodeRestriction(key)
	}
	o.machine = keysOf(n, false, isMine)
	o.unclear = keysOf(n, false, func(key string) bool {
		return !isMine(key) && (labels.IsTaint(key) || !f.mine[key] && !f.theirs[key] && !labels.NodeRestriction(key))
	})
	return o
}

// ownedFields are the keys that field managers own: agents, the webhook, those of [nobody], and all
// others. Without an entry of the webhook, webhooks and nobodys are nil.
type ownedFields struct {
	mine, webhooks, nobodys, theirs map[string]bool
	// latest is when agents last set anything but the status.
	latest time.Time
	// isReadable reports whether every entry could be read but those of nobody, isAllReadable whether
	// these could, too.
	isReadable, isAllReadable bool
}

// read reads each entry of a Node's managedFields once.
func (m Managers) read(n *metav1.PartialObjectMetadata) ownedFields {
	members := memberNames[:1]
	for key := range n.Labels {
		if !labels.IsLabel(key) {
			members = memberNames
			break
		}
	}
	f := ownedFields{mine: map[string]bool{}, theirs: map[string]bool{}, isReadable: true, isAllReadable: true}
	at := webhooksEntry(n.ManagedFields)
	if at >= 0 {
		f.webhooks, f.nobodys = map[string]bool{}, map[string]bool{}
	}
	for i, entry := range n.ManagedFields {
		isNobodys := nobody[entry.Manager]
		isAgents := !isNobodys && m.match(entry.Manager)
		if isAgents && entry.Subresource == "" && entry.Time != nil && entry.Time.After(f.latest) {
			f.latest = entry.Time.Time
		}
		owned := f.theirs
		switch {
		case isNobodys && at < 0:
			continue
		case isNobodys:
			owned = f.nobodys
		case i == at:
			owned = f.webhooks
		case isAgents:
			owned = f.mine
		}
		if collect(entry, members, owned) != nil {
			f.isReadable, f.isAllReadable = f.isReadable && isNobodys, false
		}
	}
	return f
}

// AllTaints is the key that stands for the taints of a Node: managedFields has them as one list,
// which belongs to whoever wrote it last.
const AllTaints = "taints"

// fields are the members of an entry of managedFields that count here. For each label and
// annotation that the manager owns there is a member "f:" and its key, and "." stands for the map
// itself. For taints there is one member, for the whole list.
type fields struct {
	Metadata struct {
		Labels      map[string]struct{} `json:"f:labels"`
		Annotations map[string]struct{} `json:"f:annotations"`
	} `json:"f:metadata"`
	Spec struct {
		Taints *struct{} `json:"f:taints"`
	} `json:"f:spec"`
}

// memberNames are the names of these members. Only the first counts for a Node of which nothing but
// labels is seen.
var memberNames = []string{`"f:labels"`, `"f:annotations"`, `"f:taints"`}

// collect adds the keys of the labels and annotations that an entry owns, and AllTaints if it owns
// the list. It does not read an entry that has none of the members.
func collect(entry metav1.ManagedFieldsEntry, members []string, keys map[string]bool) error {
	if entry.FieldsV1 == nil || !slices.ContainsFunc(members, func(name string) bool { return strings.Contains(entry.FieldsV1.GetRawString(), name) }) {
		return nil // most entries have none, and need not be read
	}
	var said fields
	if err := json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), &said); err != nil {
		return fmt.Errorf("reading the fields of manager %q: %w", entry.Manager, err)
	}
	for field := range said.Metadata.Labels {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys[key] = true
		}
	}
	for field := range said.Metadata.Annotations {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys[labels.AnnotationKey(key)] = true
		}
	}
	if said.Spec.Taints != nil {
		keys[AllTaints] = true
	}
	return nil
}
