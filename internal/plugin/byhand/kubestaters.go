package byhand

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
)

// Inheritance is what kube-state-rs has left behind.
type Inheritance struct {
	// Saved are the labels of each node, in the order of their names.
	Saved []record.KubeStateRSLabels
	// Unreadable has an error for each ConfigMap that cannot be read.
	Unreadable []error
	// Transactions are its transactions. They have no further effect.
	Transactions []*corev1.ConfigMap
}

// Inherited returns what kube-state-rs has left behind in the cluster.
func Inherited(ctx context.Context, c *inspect.Cluster) (*Inheritance, error) {
	i := &Inheritance{}
	err := c.Records().EachConfigMap(ctx, func(cm *corev1.ConfigMap) error {
		if record.OwnerOf(cm) == record.KubeStateRS {
			i.add(cm)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, malformed, err := c.Transactions(ctx)
	for _, m := range malformed {
		isTheirs, isEnd := record.IsKubeStateRSTransaction(m.Object)
		if isTheirs {
			i.Transactions = append(i.Transactions, m.Object)
		}
		if isEnd {
			i.add(m.Object)
		}
	}
	i.sort()
	return i, err
}

// ReadInheritance returns the ConfigMaps of kube-state-rs in a stream of YAML documents, or of lists
// as kubectl get prints them. Other ConfigMaps in it are ignored.
func ReadInheritance(r io.Reader) (*Inheritance, error) {
	i := &Inheritance{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			i.sort()
			return i, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", number, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		all, err := configMapsIn(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		for _, cm := range all {
			if _, isEnd := record.IsKubeStateRSTransaction(cm); isEnd || record.OwnerOf(cm) == record.KubeStateRS {
				i.add(cm)
			}
		}
	}
}

// configMapsIn returns the ConfigMap in a document, or those in a list.
func configMapsIn(document []byte) ([]*corev1.ConfigMap, error) {
	var list struct {
		Kind  string              `json:"kind"`
		Items []*corev1.ConfigMap `json:"items"`
	}
	if err := yaml.Unmarshal(document, &list); err != nil {
		return nil, err
	}
	switch list.Kind {
	case "List", "ConfigMapList":
		return slices.DeleteFunc(list.Items, func(cm *corev1.ConfigMap) bool { return cm == nil }), nil
	case "ConfigMap":
		cm := &corev1.ConfigMap{}
		return []*corev1.ConfigMap{cm}, yaml.Unmarshal(document, cm)
	}
	return nil, fmt.Errorf("%q is not a ConfigMap: give the output of kubectl get configmaps -o yaml", list.Kind)
}

// add adds the labels in a ConfigMap, unless later ones of the node are known.
func (i *Inheritance) add(cm *corev1.ConfigMap) {
	if isTheirs, isEnd := record.IsKubeStateRSTransaction(cm); isTheirs && !isEnd {
		return
	}
	saved, err := record.ParseKubeStateRS(cm)
	if err != nil {
		i.Unreadable = append(i.Unreadable, fmt.Errorf("ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err))
		return
	}
	at := slices.IndexFunc(i.Saved, func(s record.KubeStateRSLabels) bool { return s.Node == saved.Node })
	switch {
	case at < 0:
		i.Saved = append(i.Saved, saved)
	case saved.After(i.Saved[at]):
		i.Saved[at] = saved
	}
}

func (i *Inheritance) sort() {
	slices.SortFunc(i.Saved, func(a, b record.KubeStateRSLabels) int { return cmp.Compare(a.Node, b.Node) })
}

// Takeover takes over the labels of one node from kube-state-rs.
type Takeover struct {
	// Name is the name of the node.
	Name string
	// Left are labels that kube-state-rs has saved and that are not taken over.
	Left map[string]string
	// Why is the reason why none are.
	Why string

	// next is the record to store, nil if none is.
	next *record.Record
	read records.Stored
}

// PrepareTakeover reads a node, and returns what to take over. The labels are only for a node
// without a live Node, a pending transaction and a record of nodekeeper, all of which have newer
// labels. They are then treated as set by a user. With overwrite, they also replace the record of a
// node that is away.
func PrepareTakeover(ctx context.Context, c *inspect.Cluster, from record.KubeStateRSLabels, overwrite bool) (*Takeover, error) {
	n, err := c.Node(ctx, from.Node)
	if err == nil {
		n, err = settled(ctx, c, n)
	}
	if err != nil {
		return nil, err
	}
	read := n.Saved.Stored()
	isTheirs := read.Object != nil && record.OwnerOf(read.Object) == record.KubeStateRS
	if read.Unreadable != nil && !isTheirs {
		return nil, fmt.Errorf("node %q: %w: %s", n.Name, read.Unreadable, n.Saved.Advice())
	}
	t := takeOver(from, n, isTheirs, overwrite)
	t.read = read
	return t, nil
}

// takeOver decides what to take over.
func takeOver(from record.KubeStateRSLabels, n *inspect.Node, isTheirs, overwrite bool) *Takeover {
	t := &Takeover{Name: n.Name}
	has := map[string]string{}
	switch hasOwn := n.Saved.Record != nil || n.Saved.Floor.Object != nil; {
	case len(n.Pending) > 0:
		// The queue has what happened since. It is applied as if there were no record: a floor that
		// is before all of it keeps the place of the record, and its precondition.
		t.Why = amount.Of(len(n.Pending), "pending transaction") + " of the node, which are later"
		t.next = &record.Record{Node: n.Name, Revision: revision.MustParse("1"), Floor: true}
		has = n.Pending[len(n.Pending)-1].Labels
		if n.Live != nil {
			has = n.Live.Labels
		}
	case n.Live != nil:
		t.Why, has = "the node is there, and keeps the labels that it has", n.Live.Labels
		forgotten := preserve.Forgotten(n.Name, nil, n.Live, n.Now)
		t.next = &forgotten
	case hasOwn && !overwrite:
		t.Why = "nodekeeper has a record of it already"
		if n.Saved.Record != nil {
			has = n.Saved.Record.Labels
		}
	default:
		// It is unknown who had set each label, as in a record of a release without ownership.
		imported := preserve.UserRecord(n.Name, labels.Side{Labels: from.Labels, Unclear: labels.KeysOf(maps.Keys(from.Labels))}, n.Now)
		t.next, isTheirs, has = &imported, true, from.Labels
	}
	if !isTheirs {
		t.next = nil
	}
	t.Left = maps.Clone(from.Labels)
	maps.DeleteFunc(t.Left, func(key, value string) bool { is, found := has[key]; return found && is == value })
	return t
}

// Taken reports whether the labels are taken over.
func (t *Takeover) Taken() bool { return t.Why == "" }

// Store stores the record, conditional on the ConfigMap that was read, or on its absence.
func (t *Takeover) Store(ctx context.Context, c *inspect.Cluster, dry DryRun) error {
	if t.next == nil || dry == DryRunClient {
		return nil
	}
	if err := fits(t.next.ConfigMap("").Data); err != nil {
		return fmt.Errorf("node %q: %w", t.Name, err)
	}
	door := &records.Records{Client: dry.Writer(c.Client), Namespace: c.MetadataNamespace}
	_, err := door.Write(ctx, t.read, *t.next)
	if errors.Is(err, records.ErrStale) {
		return fmt.Errorf("node %q: %w", t.Name, ErrChanged)
	}
	return err
}
