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
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
)

// Import is one exported record on its way into the cluster.
type Import struct {
	// Name is the node's name.
	Name string

	wanted *corev1.ConfigMap
	record *record.Record
	// given reports that only the labels are taken, and what people wrote.
	given bool
	// before is what the cluster has of that node.
	before *inspect.Node
}

// maxLooks is how often a node that came back between two reads is read again.
const maxLooks = 3

// PrepareImports returns what to store for these records, or an error if any of it cannot be
// stored.
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
		all[i] = newImport(cm, before, here, now)
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

// newImport returns an exported record as this cluster must have it. A record of another cluster,
// or of a later time than this one, becomes labels that are given now: its revisions say nothing
// here. So does one that a Node which is there appears to have its labels from, and has not: as the
// record was, the next change of that Node would replace it. And so does one that is earlier than
// what it replaces.
func newImport(cm *corev1.ConfigMap, before *inspect.Node, here types.UID, now revision.Revision) Import {
	if before == nil {
		before = &inspect.Node{Name: cm.Name}
	}
	wanted := cm.DeepCopy()
	origin := types.UID(wanted.Annotations[exportedFromAnnotation])
	delete(wanted.Annotations, exportedFromAnnotation)
	delete(wanted.Annotations, record.AwaySinceAnnotation)
	i := Import{Name: cm.Name, wanted: wanted, before: before, record: inspect.ParseSaved(cm).Record} // it was read before, so it can be
	r := i.record
	foreign := origin != here || r.Revision.After(now) || r.Restored.Revision.After(now)
	if foreign || !i.Stored() && (disowned(r, before) || isEarlier(r, before)) {
		given := preserve.UserRecord(r.Node, preserve.Saved(*r), now)
		given.SavedAt, given.Withheld = r.SavedAt, preserve.Apart(*r)
		given.Write(wanted)
		i.record, i.given = &given, true
	}
	return i
}

// settled returns a node as one read shows it. If it has come back between the reads, it is read
// again, a few times at most.
func settled(ctx context.Context, c *inspect.Cluster, n *inspect.Node) (_ *inspect.Node, err error) {
	for attempt := 0; n != nil && cameBack(n) && attempt < maxLooks; attempt++ {
		if n, err = c.Node(ctx, n.Name); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// cameBack reports whether the record of a node follows an incarnation that came after the node was
// looked for: it may be there, and is not known to be.
func cameBack(n *inspect.Node) bool {
	r := n.Saved.Record
	if r == nil {
		return false
	}
	isLive := func(uid types.UID) bool { return n.Live != nil && n.Live.UID == uid }
	return r.Restored.Revision.After(n.Now) && !isLive(r.Restored.UID) ||
		r.Source != "" && r.Revision.After(n.Now) && !isLive(r.Source)
}

// isEarlier reports whether a record replaces one of a later state, or a floor. An event of that
// state, or from before that floor, may be recorded once more, and must not count.
func isEarlier(r *record.Record, n *inspect.Node) bool {
	there := n.Saved.Stored().Record
	return there != nil && (there.Revision.After(r.Revision) || there.Restored.Revision.After(r.Restored.Revision))
}

// disowned reports whether a Node that is there would own the labels of a record, and has others.
func disowned(r *record.Record, n *inspect.Node) bool {
	if n.Live == nil {
		return false
	}
	live := preserve.NodeOf(n.Live)
	return preserve.Owned(*r, live.UID, live.Marker) && !maps.Equal(live.Labels, r.Labels)
}

// Appeared returns the nodes of imports that were away when these were prepared, are there now, and
// must get the labels. Nothing else may restore them: what a watcher recorded of such a node before
// its record was stored can have had no effect.
func Appeared(ctx context.Context, c *inspect.Cluster, all []Import) ([]string, error) {
	var away []string
	for i := range all {
		if all[i].before.Live == nil {
			away = append(away, all[i].Name)
		}
	}
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
			preserve.Owned(*n.Saved.Record, n.Live.UID, n.Live.Labels[labels.Marker])
	}), nil
}

// Stored reports whether the record is in the cluster already: just so, or, if only the labels
// count, with these labels.
func (i *Import) Stored() bool {
	has := i.before.Saved
	switch {
	case has.Object == nil || !maps.Equal(has.Object.Labels, i.wanted.Labels):
		return false
	case i.given:
		return has.Record != nil && preserve.Equivalent(*has.Record, *i.record) &&
			maps.Equal(ofPeople(has.Object.Annotations), ofPeople(i.wanted.Annotations))
	}
	return maps.Equal(has.Object.Data, i.wanted.Data) && len(has.Object.BinaryData) == 0 && maps.Equal(has.Object.Annotations, i.wanted.Annotations)
}

// Owed reports whether there is a Node that must get the labels.
func (i *Import) Owed() bool {
	r := i.record
	if i.Stored() {
		r = i.before.Saved.Record
	}
	live := i.before.Live
	return live != nil && !preserve.Owned(*r, live.UID, live.Labels[labels.Marker])
}

// Store stores the record: a new one conditional on its name, any other conditional on the one that
// was read, be that a floor. It returns what was done, as in "node/x imported".
func (i *Import) Store(ctx context.Context, c *inspect.Cluster, dry DryRun) (done string, err error) {
	door := &records.Records{Namespace: c.MetadataNamespace}
	if dry != DryRunClient {
		door.Client = dry.Writer(c.Client)
	}
	read := i.before.Saved.Stored().Object
	switch {
	case i.Stored():
		return "unchanged", nil
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
		return "", fmt.Errorf("node %q: %w; if the ConfigMap %s/%s is another product's, it must go first", i.Name, ErrChanged, c.MetadataNamespace, i.Name)
	case errors.Is(err, records.ErrStale):
		return "", fmt.Errorf("node %q: %w", i.Name, ErrChanged)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no namespace %q: install nodekeeper, or create it: %w", c.MetadataNamespace, err)
	}
	return done, err
}

// ofPeople returns the annotations of a record that are not nodekeeper's.
func ofPeople(annotations map[string]string) map[string]string {
	own := maps.Clone(annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return strings.HasPrefix(key, "nodekeeper.dev/") })
	return own
}
