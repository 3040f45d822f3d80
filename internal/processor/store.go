package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
)

// errStale says that a write was refused because what it was decided from has changed since.
var errStale = errors.New("what was read has changed since")

// store reads and writes records.
type store struct {
	cache     client.Reader
	client    client.Client
	namespace string
	conflicts prometheus.Counter
}

// saved is a record as it stands in the cluster. The zero value: there is none.
type saved struct {
	record *record.Record
	object *corev1.ConfigMap
}

// cached returns the record of a node from the cache.
func (s *store) cached(ctx context.Context, node string) (saved, error) {
	return s.read(ctx, s.cache, node)
}

// fresh returns the record of a node from the API server.
func (s *store) fresh(ctx context.Context, node string) (saved, error) {
	return s.read(ctx, s.client, node)
}

func (s *store) read(ctx context.Context, from client.Reader, node string) (saved, error) {
	cm := &corev1.ConfigMap{}
	err := from.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: node}, cm)
	if apierrors.IsNotFound(err) {
		return saved{}, nil // the node has no saved labels
	}
	if err != nil {
		return saved{}, fmt.Errorf("reading the record of node %q: %w", node, err)
	}
	r, err := record.Parse(cm)
	if err != nil {
		return saved{object: cm}, fmt.Errorf("reading the record of node %q: %w", node, err)
	}
	return saved{record: r, object: cm}, nil
}

// write stores r in place of what was read, and returns the record as it is then, or errStale if what was read is not there any
// more: a create is conditional on the name, an update on the resourceVersion.
func (s *store) write(ctx context.Context, read saved, r record.Record) (*saved, error) {
	if read.record == nil || read.record.Version != r.Version {
		r.SavedAt = time.Now()
	}
	var cm *corev1.ConfigMap
	var err error
	if read.object == nil {
		cm = r.ConfigMap(s.namespace)
		err = s.client.Create(ctx, cm)
	} else {
		cm = read.object.DeepCopy()
		r.Write(cm)
		err = s.client.Update(ctx, cm)
	}
	// AlreadyExists, Conflict: another write came first, or the answer to our own was lost.
	// NotFound: the record was removed since it was read.
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && read.object != nil {
		s.conflicts.Inc()
		return nil, errStale
	}
	if err != nil {
		return nil, fmt.Errorf("storing the record of node %q: %w", r.Node, err)
	}
	return &saved{record: &r, object: cm}, nil
}

// liveNode returns the Node of that name as the decision sees it, nil if there is none.
func (p *Processor) liveNode(ctx context.Context, name string) (*preserve.Node, error) {
	n, err := p.liveMetadata(ctx, name)
	if err != nil || n == nil {
		return nil, err
	}
	return preserve.NodeOf(n), nil
}

// liveMetadata returns the Node of that name from the API server, metadata only, nil if there is none.
func (p *Processor) liveMetadata(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	n := nodeMetadata(name)
	err := p.client.Get(ctx, types.NamespacedName{Name: name}, n)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // "no live Node" is one of the decision's inputs, not an error
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %q: %w", name, err)
	}
	return n, nil
}

// eachNode calls do with every Node, metadata only, from the API server.
func (p *Processor) eachNode(ctx context.Context, do func(*metav1.PartialObjectMetadata)) error {
	err := pages.Each(ctx, p.client, pages.Metadata("Node"), "", func(n *metav1.PartialObjectMetadata) error {
		do(n)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	return nil
}

// patchNode changes the metadata of a Node in one write that is conditional on the uid and the resourceVersion that
// were read. It returns the Node that came of it, or errStale if that is not the Node any more.
func (p *Processor) patchNode(ctx context.Context, name string, uid types.UID, read string, changes map[string]any) (*metav1.PartialObjectMetadata, error) {
	changes["uid"], changes["resourceVersion"] = uid, read
	n := nodeMetadata(name)
	err := p.patchMetadata(ctx, n, changes)
	// Conflict: the Node changed, or the answer to our own patch was lost. NotFound: it is gone.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		p.metrics.conflicts.WithLabelValues(nodeObject).Inc()
		return nil, errStale
	}
	return n, err
}

// patchMetadata makes a merge patch (RFC 7396) of an object's metadata. The object becomes what came of it.
func (p *Processor) patchMetadata(ctx context.Context, obj client.Object, changes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": changes})
	if err != nil {
		return fmt.Errorf("encoding the patch of %q: %w", obj.GetName(), err)
	}
	return p.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body))
}

// labelChanges is the patch from the labels that were read to those of the decision.
func labelChanges(read *preserve.Node, d preserve.Decision) map[string]*string {
	changes := map[string]*string{labels.Marker: &d.Marker}
	for key := range read.Labels {
		if _, ok := d.Labels[key]; !ok {
			changes[key] = nil
		}
	}
	for key, value := range d.Labels {
		if live, ok := read.Labels[key]; !ok || live != value {
			changes[key] = &value
		}
	}
	return changes
}

func nodeMetadata(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}
