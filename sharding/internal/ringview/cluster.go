package ringview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/sharding/api/v1alpha1"
)

// Cluster reads the rings in a cluster. All fields are required. It is safe for concurrent use.
type Cluster struct {
	// Client reads from the API server, not from a cache. Its scheme must have ClusterRings.
	Client client.Reader
	// Mapper maps the resources of the API server. Only Owners uses it.
	Mapper meta.RESTMapper
	// Prefix is the prefix of label keys, except in rings with shards in any namespace, which use
	// [v1alpha1.TimeberttPrefix]. SharderNamespace is the namespace of the sharder, which belongs
	// to no ring by default.
	Prefix           v1alpha1.Prefix
	SharderNamespace string
}

// Summary is a ring in a list.
type Summary struct {
	Name string `json:"name"`
	// Ready and Balanced are the statuses of these conditions.
	Ready      metav1.ConditionStatus `json:"ready"`
	Balanced   metav1.ConditionStatus `json:"balanced"`
	Shards     int32                  `json:"shards"`
	Available  int32                  `json:"availableShards"`
	Moving     int32                  `json:"moving"`
	Unassigned int32                  `json:"unassigned"`
	// Table is the generation of the table, 0 if there is none.
	Table int64 `json:"tableGeneration"`
	// ShardNamespace is the namespace of the Leases of the shards.
	ShardNamespace string `json:"shardNamespace"`
	// Resources are the main resources: see [ResourceName].
	Resources []string    `json:"resources"`
	CreatedAt metav1.Time `json:"createdAt"`
}

// Rings returns all rings, sorted by name.
func (c *Cluster) Rings(ctx context.Context) ([]Summary, error) {
	rings, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Summary, len(rings))
	for i := range rings {
		all[i] = summaryOf(&rings[i])
	}
	return all, nil
}

func (c *Cluster) list(ctx context.Context) ([]v1alpha1.ClusterRing, error) {
	list := &v1alpha1.ClusterRingList{}
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing rings: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.ClusterRing) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

func (c *Cluster) get(ctx context.Context, name string) (*v1alpha1.ClusterRing, error) {
	ring := &v1alpha1.ClusterRing{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, ring); err != nil {
		return nil, fmt.Errorf("reading ring %q: %w", name, err)
	}
	return ring, nil
}

func summaryOf(ring *v1alpha1.ClusterRing) Summary {
	s := Summary{
		Name: ring.Name, Ready: statusOf(ring, "Ready"), Balanced: statusOf(ring, "Balanced"), CreatedAt: ring.CreationTimestamp,
		Shards: ring.Status.Shards, Available: ring.Status.AvailableShards, Moving: ring.Status.Moving, Unassigned: ring.Status.Unassigned,
		Table: generation(ring), ShardNamespace: ring.Spec.Shards.Namespace,
	}
	for _, main := range ring.Spec.Resources {
		s.Resources = append(s.Resources, ResourceName(main.GroupResource))
	}
	return s
}

// statusOf returns the status of a condition, which is Unknown before the sharder sets it.
func statusOf(ring *v1alpha1.ClusterRing, condition string) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(ring.Status.Conditions, condition); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}

// generation returns the generation of the table, 0 if there is none.
func generation(ring *v1alpha1.ClusterRing) int64 {
	if ring.Status.Table == nil {
		return 0
	}
	return ring.Status.Table.Generation
}

// ResourceName returns the name of a resource for kubectl: "secrets", or "deployments.apps".
func ResourceName(r v1alpha1.GroupResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// prefixOf returns the prefix of the label keys of a ring.
func (c *Cluster) prefixOf(ring *v1alpha1.ClusterRing) v1alpha1.Prefix {
	if ring.Spec.Shards.Namespace == v1alpha1.AnyNamespace {
		return v1alpha1.TimeberttPrefix
	}
	return c.Prefix
}

// leases returns the Leases of the shards of a ring, by name.
func (c *Cluster) leases(ctx context.Context, ring *v1alpha1.ClusterRing) (map[string]*coordinationv1.Lease, error) {
	namespace := ring.Spec.Shards.Namespace
	if namespace == v1alpha1.AnyNamespace {
		namespace = metav1.NamespaceAll
	}
	all := map[string]*coordinationv1.Lease{}
	err := pages.Each(ctx, c.Client, func() client.ObjectList { return &coordinationv1.LeaseList{} }, namespace,
		func(l *coordinationv1.Lease) error {
			all[l.Name] = l
			return nil
		}, client.MatchingLabels{c.prefixOf(ring).RingLabel(): ring.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of the shards in namespace %q: %w", ring.Spec.Shards.Namespace, err)
	}
	return all, nil
}

// namespaceLabels returns the labels of a Namespace.
func (c *Cluster) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, m); err != nil {
		return nil, fmt.Errorf("reading namespace %q: %w", name, err)
	}
	return m.Labels, nil
}
