package ringview

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// Ring is all of one ring.
type Ring struct {
	Summary

	Members []Member `json:"members"`
	// Conditions are in the order of their types.
	Conditions []metav1.Condition `json:"conditions"`
	// BalancedTable is the last generation of the table for which nothing was left to move.
	BalancedTable int64 `json:"balancedTableGeneration"`
	// SilentSlots is how many slots belong to silent shards, whose new objects go elsewhere.
	SilentSlots int `json:"silentSlots"`
	// IsDeleted reports that the ring is being deleted.
	IsDeleted bool `json:"deleted,omitempty"`
	// LeasesProblem says why the Leases of the shards cannot be read: then Members lack what Leases say.
	LeasesProblem string `json:"leasesProblem,omitempty"`
}

// Member is a shard of a ring.
type Member struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Slots int32  `json:"slots"`
	// Share is how many percent of the slots the shard has.
	Share float64 `json:"sharePercent"`
	// Since is since when the shard has been in its state, and JoinedAt since when it has held its Lease.
	Since     *metav1.Time      `json:"since,omitempty"`
	JoinedAt  *metav1.MicroTime `json:"joinedAt,omitempty"`
	RenewedAt *metav1.MicroTime `json:"renewedAt,omitempty"`
	// Protocol is that of the hand-over which the shard follows, "" if it is not known.
	Protocol string `json:"protocol,omitempty"`
	// Holder is who holds the Lease, "" if nobody does or that is not known.
	Holder string `json:"holder,omitempty"`
}

// Ring returns all of a ring. The shards are read from its status, and from the Leases if the user may
// list them.
func (c *Cluster) Ring(ctx context.Context, name string) (*Ring, error) {
	stored, err := c.get(ctx, name)
	if err != nil {
		return nil, err
	}
	leases, err := c.leases(ctx, stored)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	r := describe(stored, leases, c.prefixOf(stored))
	if err != nil {
		r.LeasesProblem = err.Error()
	}
	return r, nil
}

// Describe returns all of a ring that its status says, without what the Leases of its shards say.
func Describe(stored *v1alpha1.ClusterRing) *Ring { return describe(stored, nil, "") }

// describe returns all of a ring and of the shards in Leases, by name. The keys on these have the prefix.
func describe(stored *v1alpha1.ClusterRing, leases map[string]*coordinationv1.Lease, prefix v1alpha1.Prefix) *Ring {
	r := &Ring{
		Summary: summaryOf(stored), Conditions: slices.SortedFunc(slices.Values(stored.Status.Conditions), byType),
		BalancedTable: stored.Status.BalancedGeneration, IsDeleted: stored.DeletionTimestamp != nil, SilentSlots: silentSlots(stored.Status.Table),
	}
	for _, m := range stored.Status.Members {
		r.Members = append(r.Members, memberOf(m, leases[m.Name], prefix))
	}
	return r
}

func byType(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) }

// memberOf returns a shard with what its Lease says, which may be nil. The keys on the Lease have the prefix.
func memberOf(m v1alpha1.Member, l *coordinationv1.Lease, prefix v1alpha1.Prefix) Member {
	shown := Member{Name: m.Name, State: m.State, Slots: m.Slots, Share: float64(m.Slots) * 100 / slots.Count}
	if l == nil {
		return shown
	}
	shown.Since = setAt(l, prefix.StateLabel())
	shown.JoinedAt, shown.RenewedAt, shown.Protocol = l.Spec.AcquireTime, l.Spec.RenewTime, l.Annotations[prefix.ProtocolAnnotation()]
	if shown.JoinedAt == nil {
		shown.JoinedAt = &metav1.MicroTime{Time: l.CreationTimestamp.Time}
	}
	if shown.Protocol == "" {
		shown.Protocol = v1alpha1.Protocol1
	}
	if l.Spec.HolderIdentity != nil {
		shown.Holder = *l.Spec.HolderIdentity
	}
	return shown
}

// silentSlots returns how many slots the shards that are silent have.
func silentSlots(t *v1alpha1.Table) (n int) {
	if t == nil || len(t.Next) != len(t.Slots) {
		return 0
	}
	for i := range t.Slots {
		if t.Slots[i] != t.Next[i] {
			n++
		}
	}
	return n
}

// setAt returns when whoever set a label of an object last changed what it has set of the object, nil if
// that is not known: the API server notes it.
func setAt(o metav1.Object, label string) *metav1.Time {
	var last *metav1.Time
	for _, e := range o.GetManagedFields() {
		if e.FieldsV1 == nil || e.Time == nil || !setsLabel(e.FieldsV1.GetRawBytes(), label) {
			continue
		}
		if last == nil || last.Before(e.Time) {
			last = e.Time
		}
	}
	return last
}

func setsLabel(fields []byte, label string) bool {
	if !bytes.Contains(fields, []byte(label)) {
		return false
	}
	var has struct {
		Metadata struct {
			Labels map[string]json.RawMessage `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(fields, &has) != nil {
		return false
	}
	_, ok := has.Metadata.Labels["f:"+label]
	return ok
}
