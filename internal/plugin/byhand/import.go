package byhand

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
)

// Import is an exported record to store in the cluster.
type Import struct {
	// Name is the name of the node.
	Name string

	wanted *corev1.ConfigMap
	record *record.Record
	// labelsOnly reports whether only the labels and other people's annotations are imported, as if a
	// user had set them.
	labelsOnly bool
	// keeps reports whether the node is live and keeps its own labels.
	keeps bool
	// before is the state of the node in the cluster.
	before *inspect.Node
	// bound selects the labels that belong to a machine.
	bound labels.MachineBound
}

// maxReads bounds repeated reads of a node that returns between two reads.
const maxReads = 3

// PrepareImports returns the imports of these records, or an error if any of them cannot be stored.
// With overwrite, they replace existing records, and the labels of live nodes.
func PrepareImports(ctx context.Context, c *inspect.Cluster, exported []*corev1.ConfigMap, overwrite bool) ([]Import, error) {
	here, err := ClusterUID(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, cm := range exported {
		wanted[cm.Name] = true
	}
	found, err := c.Every(ctx, func(name string) bool { return wanted[name] })
	if err != nil {
		return nil, err
	}
	now, err := c.Nodes().Now(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Import, len(exported))
	var taken []string
	for i, cm := range exported {
		before, err := settled(ctx, c, found[cm.Name])
		if err != nil {
			return nil, err
		}
		all[i] = newImport(cm, before, here, now, c.View(cm.Name).MachineBound, overwrite)
		all[i].wanted.Namespace = c.MetadataNamespace
		if all[i].before.Saved.Object != nil && !all[i].Stored() {
			taken = append(taken, cm.Name)
		}
	}
	if len(taken) > 0 && !overwrite {
		return nil, fmt.Errorf("records of %s already exist, nothing imported: use --overwrite to replace them", Abbreviate(taken))
	}
	return all, nil
}

// newImport returns the import of an exported record. It imports only the labels, as if a user set
// them now, if the revisions of the record do not apply:
//
//   - The record is from another cluster, or from the future of this one.
//   - A live Node would own the record, and has other labels. Its next change would replace the record.
//   - The record is older than the one that it replaces.
//
// Without overwrite, a live Node that has had its labels keeps what it has now: users have changed
// or removed what differs.
func newImport(cm *corev1.ConfigMap, before *inspect.Node, here types.UID, now revision.Revision, bound labels.MachineBound, overwrite bool) Import {
	if before == nil {
		before = &inspect.Node{Name: cm.Name}
	}
	wanted := cm.DeepCopy()
	origin := types.UID(wanted.Annotations[exportedFromAnnotation])
	delete(wanted.Annotations, exportedFromAnnotation)
	delete(wanted.Annotations, record.AwaySinceAnnotation)
	i := Import{Name: cm.Name, wanted: wanted, before: before, bound: bound, record: inspect.ParseSaved(cm).Record} // ReadExported has validated it
	r := i.record
	foreign := origin != here || r.Revision.After(now) || r.Restored.Revision.After(now)
	i.keeps = !overwrite && before.Live != nil && hasHadLabels(before.Live, *r, foreign)
	if foreign || !i.keeps && !i.Stored() && (disowned(r, before) || isEarlier(r, before)) {
		userRecord := preserve.UserRecord(r.Node, preserve.Saved(*r), now)
		userRecord.SavedAt, userRecord.Withheld = r.SavedAt, preserve.Apart(*r)
		if !foreign { // a tool of the same name elsewhere would remove the labels that it does not apply here
			userRecord.Owners = r.Owners
		}
		userRecord.Write(wanted)
		i.record, i.labelsOnly = &userRecord, true
	}
	return i
}

// hasHadLabels reports whether a Node has had its saved labels: those of the record, or of one that
// was restored onto it. The uids and markers of another cluster prove nothing.
func hasHadLabels(n *nodeview.Node, r record.Record, foreign bool) bool {
	return n.IsRestored() || !foreign && preserve.Owned(r, n.UID, n.Marker)
}

// settled returns a node from a consistent read. It reads a node that returned between the reads of
// its parts again, up to maxReads times.
func settled(ctx context.Context, c *inspect.Cluster, n *inspect.Node) (_ *inspect.Node, err error) {
	for attempt := 0; n != nil && cameBack(n) && attempt < maxReads; attempt++ {
		if n, err = c.Node(ctx, n.Name); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// cameBack reports whether the record of a node follows an incarnation that was created after the
// Node was read, so that the node may be live now.
func cameBack(n *inspect.Node) bool {
	r := n.Saved.Record
	if r == nil {
		return false
	}
	isLive := func(uid types.UID) bool { return n.Live != nil && n.Live.UID == uid }
	return r.Restored.Revision.After(n.Now) && !isLive(r.Restored.UID) ||
		r.Source != "" && r.Revision.After(n.Now) && !isLive(r.Source)
}

// isEarlier reports whether a record replaces a later record or a floor. Watchers may record events
// of that state again, which must have no effect.
func isEarlier(r *record.Record, n *inspect.Node) bool {
	there := n.Saved.Stored().Record
	return there != nil && (there.Revision.After(r.Revision) || there.Restored.Revision.After(r.Restored.Revision))
}

// disowned reports whether a live Node would own the labels of a record, but has other labels.
func disowned(r *record.Record, n *inspect.Node) bool {
	if n.Live == nil {
		return false
	}
	live := n.Live
	return preserve.Owned(*r, live.UID, live.Marker) && !maps.Equal(live.Labels, r.Labels)
}

// Appeared returns the nodes that were away when their imports were prepared, are live now, and
// must get the labels. The caller must request the restores: a transaction that a watcher recorded
// before the record was stored may have had no effect.
func Appeared(ctx context.Context, c *inspect.Cluster, all []Import) ([]string, error) {
	var away []string
	for i := range all {
		if all[i].before.Live == nil {
			away = append(away, all[i].Name)
		}
	}
	return OwedNow(ctx, c, away)
}

// OwedNow returns which of these nodes are live now, and must get the labels of their records.
func OwedNow(ctx context.Context, c *inspect.Cluster, away []string) ([]string, error) {
	if len(away) == 0 {
		return nil, nil
	}
	now, err := ReadNodes(ctx, c, away)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(away, func(name string) bool {
		n := now[name]
		return n == nil || n.Live == nil || n.Saved.Record == nil ||
			preserve.Owned(*n.Saved.Record, n.Live.UID, n.Live.Marker)
	}), nil
}

// Stored reports whether the cluster already has the record, or its labels if only these are
// imported.
func (i *Import) Stored() bool {
	has := i.before.Saved
	switch {
	case has.Object == nil || !maps.Equal(has.Object.Labels, i.wanted.Labels):
		return false
	case i.labelsOnly:
		return has.Record != nil && preserve.Equivalent(*has.Record, *i.record, i.bound) &&
			maps.Equal(ofPeople(has.Object.Annotations), ofPeople(i.wanted.Annotations))
	}
	return maps.Equal(has.Object.Data, i.wanted.Data) && len(has.Object.BinaryData) == 0 && maps.Equal(has.Object.Annotations, i.wanted.Annotations)
}

// Kept reports whether the node is live, has other labels than the record, and keeps them. They must
// then be saved.
func (i *Import) Kept() bool {
	if !i.keeps || i.Stored() {
		return false
	}
	return !maps.Equal(i.before.Live.Labels, i.record.Labels)
}

// Owed reports whether a live Node must get the labels.
func (i *Import) Owed() bool {
	r := i.record
	if i.Stored() {
		r = i.before.Saved.Record
	}
	live := i.before.Live
	return live != nil && !i.keeps && !preserve.Owned(*r, live.UID, live.Marker)
}

// Store stores the record. The write is conditional on the record or floor that was read, or on the
// absence of both. It returns a participle for a message, as in "node/x imported".
func (i *Import) Store(ctx context.Context, c *inspect.Cluster, dry DryRun) (done string, err error) {
	door := &records.Records{Namespace: c.MetadataNamespace}
	if dry != DryRunClient {
		door.Client = dry.Writer(c.Client)
	}
	read := i.before.Saved.Stored().Object
	switch {
	case i.Stored():
		return "unchanged", nil
	case i.labelsOnly && i.Kept():
		return "not imported", nil // its labels would replace those of the live Node
	case i.before.Saved.Object == nil:
		done = "imported"
	default:
		done = "replaced"
	}
	switch {
	case dry == DryRunClient:
		return done, nil
	case read == nil:
		err = door.Create(ctx, i.wanted)
	default:
		err = door.Replace(ctx, read, i.wanted)
	}
	switch {
	case errors.Is(err, records.ErrStale) && read == nil:
		return "", fmt.Errorf("node %q: %w; if the ConfigMap %s/%s belongs to another product, remove it first", i.Name, ErrChanged, c.MetadataNamespace, i.Name)
	case errors.Is(err, records.ErrStale):
		return "", fmt.Errorf("node %q: %w", i.Name, ErrChanged)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no namespace %q: install nodekeeper, or create it: %w", c.MetadataNamespace, err)
	}
	return done, err
}

// ofPeople returns the annotations of a record that do not belong to nodekeeper.
func ofPeople(annotations map[string]string) map[string]string {
	own := maps.Clone(annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return strings.HasPrefix(key, "nodekeeper.dev/") })
	return own
}
