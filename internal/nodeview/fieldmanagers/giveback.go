package fieldmanagers

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nodekeeper.dev/internal/labels"
)

// maxUpdaters is how many managers may have updated a Node that gets an entry of another one. The API
// server merges the entries of more than ten, the oldest first (DefaultMaxUpdateManagers in
// k8s.io/apimachinery/pkg/util/managedfields/internal). Two are left to managers to come.
const maxUpdaters = 8

// GiveBack returns the managedFields of a Node with the labels that restores have set on it given
// back to their owners, or nil if there is nothing to give back. The Node has these labels, which
// include the preserved annotations and taints, without the marker. hasAllTaints reports whether all
// of its taints are among them.
//
// An owner without an entry gets one without a time, unless too many managers have updated the Node.
// The list of taints has one owner: a manager that applies it could remove the taints of others, so it
// gets the list only if it has set all of them.
func (o Owners) GiveBack(managed []metav1.ManagedFieldsEntry, own map[string]string, hasAllTaints bool) ([]metav1.ManagedFieldsEntry, error) {
	list, err := o.List()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	g := giving{labels: own, hasAllTaints: hasAllTaints, entries: slices.Clone(managed), givenBack: fieldpath.NewSet()}
	ours, owned, err := g.ours()
	if err != nil {
		return nil, err
	}
	for _, owner := range list {
		if IsNodekeeper(owner.Manager) {
			continue
		}
		if err := g.give(owner, g.fieldsFor(owner).Intersection(owned)); err != nil {
			return nil, err
		}
	}
	if g.givenBack.Empty() {
		return nil, nil
	}
	for _, at := range ours {
		if err := g.change(at, func(own *fieldpath.Set) *fieldpath.Set { return own.Difference(g.givenBack) }); err != nil {
			return nil, err
		}
	}
	return g.entries, nil
}

// giving is one GiveBack.
type giving struct {
	labels       map[string]string
	hasAllTaints bool
	entries      []metav1.ManagedFieldsEntry
	givenBack    *fieldpath.Set
}

// ours returns the indexes of nodekeeper's entries, and the fields that they own together.
func (g *giving) ours() (at []int, owned *fieldpath.Set, err error) {
	owned = fieldpath.NewSet()
	for i, entry := range g.entries {
		if !IsNodekeeper(entry.Manager) || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
			continue
		}
		fields, err := fieldsOf(entry)
		if err != nil {
			return nil, nil, err
		}
		at, owned = append(at, i), owned.Union(fields)
	}
	return at, owned, nil
}

// fieldsFor returns the fields that an owner may get.
func (g *giving) fieldsFor(owner Owner) *fieldpath.Set {
	fields := fieldpath.NewSet()
	for key := range owner.Keys.All() {
		if labels.IsTaint(key) && owner.Operation == metav1.ManagedFieldsOperationApply && !g.mayHaveTaints(owner) {
			continue
		}
		if _, isThere := g.labels[key]; isThere {
			fields.Insert(pathOf(key))
		}
	}
	return fields
}

// mayHaveTaints reports whether all taints of the Node are those of a manager that applies them.
func (g *giving) mayHaveTaints(owner Owner) bool {
	taints := labels.KeysOf(maps.Keys(g.labels)).Taints()
	return g.hasAllTaints && taints.Without(owner.Keys) == ""
}

// give adds fields to the entry of an owner.
func (g *giving) give(owner Owner, fields *fieldpath.Set) error {
	if fields.Empty() {
		return nil
	}
	at := slices.IndexFunc(g.entries, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == owner.Manager && entry.Operation == owner.Operation && entry.APIVersion == "v1" && entry.Subresource == ""
	})
	if at < 0 {
		if owner.Operation == metav1.ManagedFieldsOperationUpdate && g.updaters() >= maxUpdaters {
			return nil // the API server would soon forget an entry for it
		}
		at = len(g.entries)
		g.entries = append(g.entries, metav1.ManagedFieldsEntry{Manager: owner.Manager, Operation: owner.Operation, APIVersion: "v1", FieldsType: "FieldsV1"})
	}
	g.givenBack = g.givenBack.Union(fields)
	return g.change(at, func(own *fieldpath.Set) *fieldpath.Set { return own.Union(fields) })
}

func (g *giving) updaters() (count int) {
	for _, entry := range g.entries {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate {
			count++
		}
	}
	return count
}

// change replaces the fields of an entry.
func (g *giving) change(at int, by func(*fieldpath.Set) *fieldpath.Set) error {
	entry := &g.entries[at]
	own, err := fieldsOf(*entry)
	if err != nil {
		return err
	}
	text, err := by(own).ToJSON()
	if err != nil {
		return fmt.Errorf("writing the fields of manager %q: %w", entry.Manager, err)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(text))
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
