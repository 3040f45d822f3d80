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

// Ring is a ring with its shards.
type Ring struct {
	Summary

	Members []Member `json:"members"`
	// Conditions are sorted by type.
	Conditions []metav1.Condition `json:"conditions"`
	// BalancedTable is the last generation of the table at which no object had to move.
	BalancedTable int64 `json:"balancedTableGeneration"`
	// SilentSlots is the number of slots of silent shards, whose new objects go to other shards.
	SilentSlots int `json:"silentSlots"`
	// IsDeleted reports whether the ring is being deleted.
	IsDeleted bool `json:"deleted,omitempty"`
	// LeasesProblem is the error of reading the Leases of the shards. Members then lack their data.
	LeasesProblem string `json:"leasesProblem,omitempty"`
}

// Member is a shard of a ring.
type Member struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Slots int32  `json:"slots"`
	// Share is the percentage of slots of the shard.
	Share float64 `json:"sharePercent"`
	// Since is the time since which the shard is in its state, and JoinedAt since which it holds
	// its Lease.
	Since     *metav1.Time      `json:"since,omitempty"`
	JoinedAt  *metav1.MicroTime `json:"joinedAt,omitempty"`
	RenewedAt *metav1.MicroTime `json:"renewedAt,omitempty"`
	// Protocol is the hand-over protocol of the shard, or empty if unknown.
	Protocol string `json:"protocol,omitempty"`
	// Holder is the holder of the Lease, or empty if there is none or it is unknown.
	Holder string `json:"holder,omitempty"`
}

// Ring returns a ring. Its shards come from its status, and from their Leases if the user may list
// them.
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

// describe returns a ring with the shards in Leases, by name, whose keys have the prefix.
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

// memberOf returns a shard with the data of its Lease, which may be nil, and whose keys have the
// prefix.
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

// silentSlots returns the number of slots of silent shards.
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

// setAt returns the time of the managedFields entry that owns a label, or nil: an upper bound of
// the time at which the label was set.
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
