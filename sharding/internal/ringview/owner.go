package ringview

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/slots"
)

// State is the state of an object in a ring.
type State string

// The states of an object. A shard may act on it only if it is Assigned, Misplaced or Draining.
const (
	// Assigned: the object is at the shard where it belongs.
	Assigned State = "assigned"
	// Misplaced: it is at a live shard but belongs to another one, and no hand-over has begun.
	Misplaced State = "misplaced"
	// Draining: its shard must release it to another one.
	Draining State = "draining"
	// Parked: its shard has released it, and no other shard has it yet.
	Parked State = "parked"
	// Orphaned: its shard is gone.
	Orphaned State = "orphaned"
	// Unassigned: it was never at a shard.
	Unassigned State = "unassigned"
	// Excluded: it does not belong to the ring.
	Excluded State = "excluded"
)

// Object identifies an object.
type Object struct {
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Ownership is the owner of an object in a ring.
type Ownership struct {
	Ring  string `json:"ring"`
	State State  `json:"state"`
	// Owner is the shard that acts on the object, or empty.
	Owner string `json:"owner"`
	// Agrees reports whether the labels of the object match the table.
	Agrees bool `json:"agrees"`
	// Why is the reason for the state, and Next the next action of the sharder, or empty.
	Why  string `json:"why"`
	Next string `json:"next,omitempty"`

	// Key determines the slot. Both belong to the main object.
	Key  string `json:"key,omitempty"`
	Slot *int   `json:"slot,omitempty"`
	// Table is the shard of the slot, and TableNext the shard in table.next if it differs.
	Table           string `json:"tableShard,omitempty"`
	TableNext       string `json:"tableNextShard,omitempty"`
	TableGeneration int64  `json:"tableGeneration,omitempty"`
	// Shard and Drain are the values of the labels, nil if they are missing.
	Shard *string `json:"shardLabel,omitempty"`
	Drain *string `json:"drainLabel,omitempty"`
	// DrainedAt is when the label drain was set.
	DrainedAt *metav1.Time `json:"drainedAt,omitempty"`
	// Main is the main object that controls the object, or nil for a main object.
	Main *Main `json:"main,omitempty"`
}

// Main is a main object that controls another object.
type Main struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Shard and Drain are the values of its labels, or empty.
	Shard string `json:"shardLabel,omitempty"`
	Drain string `json:"drainLabel,omitempty"`
	// IsGone reports whether the object no longer exists.
	IsGone bool `json:"gone,omitempty"`
}

// Owners returns the owners of an object in the ring of this name, or in all rings with its
// resource if ring is empty. If no ring has the resource, Owners returns none and does not read the
// object.
func (c *Cluster) Owners(ctx context.Context, ring string, mapping *meta.RESTMapping, namespace, name string) (Object, []Ownership, error) {
	rings, err := c.ringsOf(ctx, ring, groupResource(mapping))
	if err != nil || len(rings) == 0 {
		return Object{}, nil, err
	}
	m, err := c.metadata(ctx, mapping.GroupVersionKind, namespace, name)
	if err != nil {
		return Object{}, nil, err
	}
	all := make([]Ownership, len(rings))
	for i := range rings {
		q := question{c: c, ring: &rings[i], mapping: mapping, object: m, table: place.TableOf(rings[i].Status.Table)}
		if all[i], err = q.answer(ctx); err != nil {
			return Object{}, nil, err
		}
	}
	r := mapping.Resource
	return Object{
		Group: r.Group, Resource: r.Resource, Kind: mapping.GroupVersionKind.Kind, Namespace: m.Namespace, Name: m.Name, UID: string(m.UID),
	}, all, nil
}

// ringsOf returns the ring of this name, or all rings with a resource if name is empty.
func (c *Cluster) ringsOf(ctx context.Context, name string, r v1alpha1.GroupResource) ([]v1alpha1.ClusterRing, error) {
	if name == "" {
		all, err := c.list(ctx)
		return slices.DeleteFunc(all, func(ring v1alpha1.ClusterRing) bool { return !has(&ring, r) }), err
	}
	one, err := c.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return []v1alpha1.ClusterRing{*one}, nil
}

// metadata reads the metadata of an object.
func (c *Cluster) metadata(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kind)
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m); err != nil {
		return nil, fmt.Errorf("reading %s %q: %w", kind.Kind, name, err)
	}
	return m, nil
}

func groupResource(mapping *meta.RESTMapping) v1alpha1.GroupResource {
	return v1alpha1.GroupResource{Group: mapping.Resource.Group, Resource: mapping.Resource.Resource}
}

// has reports whether a ring has a resource, as a main or as a controlled one.
func has(ring *v1alpha1.ClusterRing, r v1alpha1.GroupResource) bool {
	return mainResource(ring, r) != nil || isControlled(ring, r)
}

func mainResource(ring *v1alpha1.ClusterRing, r v1alpha1.GroupResource) *v1alpha1.Resource {
	i := slices.IndexFunc(ring.Spec.Resources, func(main v1alpha1.Resource) bool { return main.GroupResource == r })
	if i < 0 {
		return nil
	}
	return &ring.Spec.Resources[i]
}

func isControlled(ring *v1alpha1.ClusterRing, r v1alpha1.GroupResource) bool {
	return slices.ContainsFunc(ring.Spec.Resources, func(main v1alpha1.Resource) bool { return slices.Contains(main.ControlledResources, r) })
}

// question is the input for the ownership of an object in one ring.
type question struct {
	c       *Cluster
	ring    *v1alpha1.ClusterRing
	mapping *meta.RESTMapping
	object  *metav1.PartialObjectMetadata
	table   place.Table
}

// answer returns the ownership.
func (q *question) answer(ctx context.Context) (Ownership, error) {
	o := Ownership{Ring: q.ring.Name, TableGeneration: generation(q.ring)}
	o.Shard, o.Drain = value(q.object.Labels, q.shardLabel()), value(q.object.Labels, q.drainLabel())
	if o.Drain != nil {
		o.DrainedAt = setAt(q.object, q.drainLabel())
	}
	main := mainResource(q.ring, groupResource(q.mapping))
	if main == nil && !isControlled(q.ring, groupResource(q.mapping)) {
		return q.excluded(o, "the ring does not have the resource "+ResourceName(groupResource(q.mapping))), nil
	}
	isSelected, err := q.isSelected(ctx)
	if err != nil {
		return o, err
	}
	if !isSelected {
		return q.excluded(o, q.whyNotSelected()), nil
	}
	if main != nil {
		q.locate(&o, *main, place.Main(q.mapping.GroupVersionKind.GroupKind(), q.object.Namespace, q.object.Name))
		q.explainMain(&o, *main)
		return o, nil
	}
	return q.answerChild(ctx, o)
}

// locate sets the key of an object, and the shards of its slot.
func (q *question) locate(o *Ownership, main v1alpha1.Resource, key slots.Object) {
	o.Key = place.Key(main, q.object.Labels, key)
	o.Slot = new(slots.Slot(o.Key))
	belongs := q.table.Of(o.Key)
	o.Table = belongs.Now
	if belongs.Next != belongs.Now {
		o.TableNext = belongs.Next
	}
}

// answerChild returns the ownership of an object of a controlled resource.
func (q *question) answerChild(ctx context.Context, o Ownership) (Ownership, error) {
	ref := metav1.GetControllerOf(q.object)
	if ref == nil {
		return q.excluded(o, "no object controls it, and the ring has its resource only as a controlled one"), nil
	}
	main, mapping, err := q.controller(ref)
	if err != nil {
		return o, err
	}
	if main == nil {
		return q.excluded(o, fmt.Sprintf("%s %s controls it, which is of no main resource of the ring that controls %s",
			ref.Kind, ref.Name, ResourceName(groupResource(q.mapping)))), nil
	}
	key := place.Controller(mapping.GroupVersionKind.GroupKind(), mapping.Scope.Name() == meta.RESTScopeNameRoot, q.object.Namespace, ref)
	q.locate(&o, *main, key)
	o.Main = &Main{Resource: ResourceName(main.GroupResource), Namespace: key.Namespace, Name: key.Name}
	stored, err := q.c.metadata(ctx, mapping.GroupVersionKind, key.Namespace, key.Name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && stored.UID != ref.UID:
		o.Main.IsGone = true
	case err != nil:
		return o, err
	default:
		o.Main.Shard, o.Main.Drain = stored.Labels[q.shardLabel()], stored.Labels[q.drainLabel()]
	}
	q.explainChild(&o)
	return o, nil
}

// controller returns the main resource of a controller reference, or nil.
func (q *question) controller(ref *metav1.OwnerReference) (*v1alpha1.Resource, *meta.RESTMapping, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // an invalid reference names no controller
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ref.Kind}
	mapping, err := q.c.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("finding out the resource of kind %s: %w", kind, err)
	}
	main := mainResource(q.ring, groupResource(mapping))
	if main == nil || !place.Controls(*main, kind, groupResource(q.mapping), ref) {
		return nil, nil, nil
	}
	return main, mapping, nil
}

// isSelected reports whether the object is in a namespace that the ring selects.
func (q *question) isSelected(ctx context.Context) (bool, error) {
	resource, m := groupResource(q.mapping), q.object
	if m.Namespace == "" && !place.IsNamespaces(resource) {
		return true, nil
	}
	selection, err := place.SelectionOf(q.ring, q.c.SharderNamespace, func(selector labels.Selector) ([]string, error) {
		name, has := m.Namespace, m.Labels
		if place.IsNamespaces(resource) {
			name = m.Name
		} else {
			var err error
			if has, err = q.c.namespaceLabels(ctx, name); err != nil {
				return nil, err
			}
		}
		if selector.Matches(labels.Set(has)) {
			return []string{name}, nil
		}
		return nil, nil
	})
	if err != nil {
		return false, err //nolint:wrapcheck // it names what failed
	}
	return selection.Selects(resource, m.Namespace, m.Name), nil
}

func (q *question) shardLabel() string { return q.c.prefixOf(q.ring).ShardLabel(q.ring.Name) }
func (q *question) drainLabel() string { return q.c.prefixOf(q.ring).DrainLabel(q.ring.Name) }

// value returns the value of a label, nil if it is missing.
func value(all map[string]string, key string) *string {
	if v, ok := all[key]; ok {
		return &v
	}
	return nil
}
