package owners

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nodekeeper.dev/internal/labels"
)

// maxUpdaters is the number of managers that may have updated an object: the API server merges the
// entries of others, the oldest first (DefaultMaxUpdateManagers in
// k8s.io/apimachinery/pkg/util/managedfields/internal).
const maxUpdaters = 10

// Change is a change of one entry of the managedFields of a Node.
type Change struct {
	// At is the index of an existing entry, or -1 to add one.
	At    int
	Entry metav1.ManagedFieldsEntry
}

// GiveBack returns the changes that give the labels which restores have set on a Node back to their
// owners. There are none if nodekeeper owns only the marker, or no owner is known. hasAllTaints
// reports whether all taints of the Node are in the view.
//
// An owner without an entry gets one without a time, see [IsGivenBack], unless the API server would
// forget another entry for it. The list of taints has one owner: a manager that applies it could
// remove the taints of others, so it gets the list only if there are no others.
func (o Owners) GiveBack(n *metav1.PartialObjectMetadata, hasAllTaints bool) ([]Change, error) {
	return o.giveBack(giving{node: n, hasAllTaints: hasAllTaints})
}

// GiveBackAtCreation returns the managedFields of a Node that is about to be created, with the
// labels that the webhook sets given back to their owners. It leaves out owners that apply or have an
// entry already: later, these labels would look like what they have set themselves, see
// [IsGivenBack].
func (o Owners) GiveBackAtCreation(n *metav1.PartialObjectMetadata) ([]metav1.ManagedFieldsEntry, error) {
	changes, err := o.giveBack(giving{node: n, isCreation: true})
	entries := slices.Clone(n.ManagedFields)
	for _, change := range changes {
		if change.At < 0 {
			entries = append(entries, change.Entry)
		} else {
			entries[change.At] = change.Entry
		}
	}
	return entries, err
}

// IsGivenBack reports whether an entry has only labels that nodekeeper has given back, and whose
// manager has not written since. The API server sets the time of every other entry, unless its manager
// has only applied values that were there already (Apply in
// k8s.io/apimachinery/pkg/util/managedfields/internal/managedfieldsupdater.go).
func IsGivenBack(entry metav1.ManagedFieldsEntry) bool {
	return entry.Time == nil && entry.Operation == metav1.ManagedFieldsOperationUpdate
}

func (o Owners) giveBack(g giving) ([]Change, error) {
	list, err := o.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	g.all = fieldpath.NewSet()
	if err := g.findOurs(); err != nil || len(g.ours) == 0 {
		return nil, err
	}
	for _, owner := range list {
		if err := g.give(owner, g.fieldsFor(owner).Intersection(g.owned)); err != nil {
			return nil, err
		}
	}
	return g.changes()
}

// giving collects the changes of one GiveBack.
type giving struct {
	node         *metav1.PartialObjectMetadata
	hasAllTaints bool
	isCreation   bool
	// ours are the indexes of nodekeeper's entries, and owned the fields that they own together.
	ours  []int
	owned *fieldpath.Set
	// all are the fields that are given to anyone.
	all  *fieldpath.Set
	list []Change
	// added counts the new entries of managers that update.
	added int
}

func (g *giving) findOurs() error {
	g.owned = fieldpath.NewSet()
	for i, entry := range g.node.ManagedFields {
		if !IsNodekeeper(entry.Manager) || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
			continue
		}
		fields, err := fieldsOf(entry)
		if err != nil {
			return err
		}
		g.ours, g.owned = append(g.ours, i), g.owned.Union(fields)
	}
	return nil
}

// fieldsFor returns the fields that an owner may get.
func (g *giving) fieldsFor(owner Owner) *fieldpath.Set {
	fields := fieldpath.NewSet()
	for key := range owner.Keys.All() {
		if labels.IsTaint(key) && owner.Operation == metav1.ManagedFieldsOperationApply && !g.hasAllTaints {
			continue
		}
		if _, isThere := g.node.Labels[key]; isThere && key != labels.Marker {
			fields.Insert(pathOf(key))
		}
	}
	return fields
}

// give adds fields to the entry of an owner.
func (g *giving) give(owner Owner, fields *fieldpath.Set) error {
	if fields.Empty() {
		return nil
	}
	at := slices.IndexFunc(g.node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == owner.Manager && entry.Operation == owner.Operation && entry.APIVersion == "v1" && entry.Subresource == ""
	})
	isUpdate := owner.Operation == metav1.ManagedFieldsOperationUpdate
	if g.isCreation && (at >= 0 || !isUpdate) {
		return nil
	}
	isNewUpdater := at < 0 && isUpdate
	if isNewUpdater && g.updaters() >= maxUpdaters {
		return nil // the API server would forget an entry for it
	}
	g.all = g.all.Union(fields)
	if at >= 0 {
		return g.change(at, func(own *fieldpath.Set) *fieldpath.Set { return own.Union(fields) })
	}
	if isNewUpdater {
		g.added++
	}
	return g.put(-1, metav1.ManagedFieldsEntry{Manager: owner.Manager, Operation: owner.Operation, APIVersion: "v1", FieldsType: "FieldsV1"}, fields)
}

func (g *giving) updaters() int {
	count := g.added
	for _, entry := range g.node.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			count++
		}
	}
	return count
}

// changes returns the changes, including those of nodekeeper's own entries.
func (g *giving) changes() ([]Change, error) {
	if g.all.Empty() {
		return nil, nil
	}
	for _, at := range g.ours {
		if err := g.change(at, func(own *fieldpath.Set) *fieldpath.Set { return own.Difference(g.all) }); err != nil {
			return nil, err
		}
	}
	return g.list, nil
}

// change replaces the fields of an existing entry.
func (g *giving) change(at int, by func(*fieldpath.Set) *fieldpath.Set) error {
	entry := g.node.ManagedFields[at]
	own, err := fieldsOf(entry)
	if err != nil {
		return err
	}
	if next := by(own); !next.Equals(own) {
		return g.put(at, entry, next)
	}
	return nil
}

func (g *giving) put(at int, entry metav1.ManagedFieldsEntry, fields *fieldpath.Set) error {
	text, err := fields.ToJSON()
	if err != nil {
		return fmt.Errorf("writing the fields of manager %q: %w", entry.Manager, err)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(text))
	g.list = append(g.list, Change{At: at, Entry: entry})
	return nil
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	if err := fields.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("%w: the fields of manager %q: %w", ErrUnreadable, entry.Manager, err)
	}
	return fields, nil
}

// pathOf returns the field of a label, an annotation or all taints.
func pathOf(key string) fieldpath.Path {
	if annotation, ok := labels.AsAnnotation(key); ok {
		return fieldpath.MakePathOrDie("metadata", "annotations", annotation)
	}
	if labels.IsTaint(key) {
		return fieldpath.MakePathOrDie("spec", "taints")
	}
	return fieldpath.MakePathOrDie("metadata", "labels", key)
}
