package ring

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// Dialect defines which rings the sharder supports and which label keys they use.
type Dialect struct {
	// Prefix is the prefix of the keys of rings whose shards are in one namespace.
	Prefix v1alpha1.Prefix
	// Compat is set if rings whose shards can be in any namespace are also supported: the rings of
	// timebertt/kubernetes-controller-sharding.
	Compat bool
}

// PrefixOf returns the prefix of the keys of a ring, even if the ring is ignored.
func (d Dialect) PrefixOf(of *v1alpha1.ClusterRing) v1alpha1.Prefix {
	if isAnywhere(of) {
		return v1alpha1.TimeberttPrefix
	}
	return d.Prefix
}

// Ignores reports whether the sharder ignores a ring. On deletion, it still removes the metadata of
// an ignored ring.
func (d Dialect) Ignores(of *v1alpha1.ClusterRing) bool { return isAnywhere(of) && !d.Compat }

// Holds reports, by a live read, whether a shard of a ring holds its Lease.
func (d Dialect) Holds(ctx context.Context, leases coordinationv1client.LeasesGetter, of *v1alpha1.ClusterRing, shard string) (bool, error) {
	label := d.PrefixOf(of).RingLabel()
	holds := func(l coordinationv1.Lease) bool { return shardlease.Holder(&l) == shard && l.Labels[label] == of.Name }
	if isAnywhere(of) {
		all, err := leases.Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			LabelSelector: label + "=" + of.Name, FieldSelector: metav1.ObjectNameField + "=" + shard,
		})
		if err != nil {
			return false, fmt.Errorf("listing the Leases of shard %q: %w", shard, err)
		}
		return slices.ContainsFunc(all.Items, holds), nil
	}
	l, err := leases.Leases(of.Spec.Shards.Namespace).Get(ctx, shard, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the Lease of shard %q: %w", shard, err)
	}
	return holds(*l), nil
}

func isAnywhere(of *v1alpha1.ClusterRing) bool {
	return of.Spec.Shards.Namespace == v1alpha1.AnyNamespace
}

// scope returns the namespace in which to list the Leases of a ring.
func scope(namespace string) string {
	if namespace == v1alpha1.AnyNamespace {
		return metav1.NamespaceAll
	}
	return namespace
}

// holderFor returns the holder identity that the sharder uses when it takes over Leases of rings
// with a prefix.
func holderFor(prefix v1alpha1.Prefix) string {
	if prefix == v1alpha1.TimeberttPrefix {
		return "shardlease-controller" // the identity that the shards of that project expect
	}
	return "sharder"
}
