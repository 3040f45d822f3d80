package nodeview

import (
	"slices"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/revision"
)

// Node is a state of a Node as nodekeeper sees it. A [View] makes it, once for each state. It must
// not be changed afterwards: caches share it, and its maps.
type Node struct {
	Name     string
	UID      types.UID
	Revision revision.Revision
	// Created is when the Node was created. It is zero in the request that creates it.
	Created time.Time
	// DeletedAt is when the deletion of the Node was requested, or the zero time. The Node stays until
	// it has no Finalizers.
	DeletedAt  time.Time
	Finalizers []string
	// Labels are the labels in the view without the marker, and the preserved annotations and taints,
	// with the keys of [labels.AnnotationKey] and [labels.TaintKey].
	Labels map[string]string
	// Marker is the value of the label [labels.Marker], see also [Node.MarkerValue].
	Marker string
	agents.Ownership
	// IsWhole reports whether the whole Node was read, and not only metadata. Without that there is no
	// Identity and no Age, and there are no Taints.
	IsWhole bool
	// Identity identifies the machine. Settled reports whether the Node was old enough when it was read
	// to have reported its whole identity.
	Identity identity.Identity
	Settled  bool
	// Age is how old the Node was when it was read.
	Age time.Duration
	// Taints are all taints of the Node, whether they are preserved or not.
	Taints []corev1.Taint
	// Unselected reports whether the view's selector does not match the Node.
	Unselected bool
	// Gated reports whether the Node waits for its labels behind the startup taint: it has the marker
	// [labels.Pending], or the taint is among its Taints.
	Gated bool
	// GatedSince is when the marker [labels.Pending] was set or, if that is unknown, when the Node was
	// created. If the field manager that set it has changed other fields since, it is the time of the
	// last change. It is zero if the Node does not have that marker.
	GatedSince time.Time
	// Managed are the managedFields, in a Node that was read from the API server.
	Managed []metav1.ManagedFieldsEntry

	// hasEmptyMarker reports whether the Node has the marker, with the value "".
	hasEmptyMarker bool
}

// OfMetadata returns the view of a Node from its metadata alone. It takes ownership of the maps and
// lists of n, and changes them.
func (v View) OfMetadata(n *metav1.PartialObjectMetadata) *Node {
	return v.of(&n.ObjectMeta, nil)
}

// OfWhole returns the view of a whole Node with its taints, and with the identity of its machine. It
// takes ownership of the maps and lists of whole, and changes them.
func (v View) OfWhole(whole *corev1.Node, now time.Time) *Node {
	n := v.of(&whole.ObjectMeta, whole.Spec.Taints)
	n.IsWhole, n.Taints = true, whole.Spec.Taints
	n.Gated = n.Gated || n.HasStartupTaint()
	n.Identity, n.Settled = identity.Of(whole), identity.Settled(n.Created, now)
	n.Age = now.Sub(n.Created)
	return n
}

func (v View) of(m *metav1.ObjectMeta, taints []corev1.Taint) *Node {
	n := &Node{
		Name: m.Name, UID: m.UID, Revision: revision.Of(m.ResourceVersion), Created: m.CreationTimestamp.Time,
		Finalizers: m.Finalizers, Unselected: !v.Selects(m.Labels), Managed: m.ManagedFields,
	}
	if m.DeletionTimestamp != nil {
		n.DeletedAt = m.DeletionTimestamp.Time
	}
	for key := range m.Labels {
		if v.Ignored.Match(key) {
			delete(m.Labels, key)
		}
	}
	m.Labels = v.Preserved.addTo(m.Labels, m.Annotations, taints)
	n.Ownership = v.Agents.Of(m)
	marker, isMarked := m.Labels[labels.Marker]
	n.Marker, n.hasEmptyMarker = marker, isMarked && marker == ""
	n.Gated, n.GatedSince = marker == labels.Pending, GatedSince(m)
	if delete(m.Labels, labels.Marker); m.Labels == nil {
		m.Labels = map[string]string{}
	}
	n.Labels = m.Labels
	return n
}

// Compact drops what only a Node that was read from the API server needs, and stores each key and
// each list of keys only once for all Nodes. Only the transform of a cache may call it.
func (n *Node) Compact() *Node {
	n.Managed, n.IsWhole, n.Taints = nil, false, nil
	n.Identity, n.Settled = identity.Identity{}, false
	if len(n.Labels) > 0 {
		n.Labels = labels.WithSharedKeys(n.Labels)
	}
	for _, keys := range []*labels.Keys{&n.Machine, &n.Unclear, &n.Claimed, &n.Admitted, &n.Edited} {
		*keys = unique.Make(*keys).Value()
	}
	return n
}

// IsDeleting reports whether the deletion of the Node was requested.
func (n *Node) IsDeleting() bool { return !n.DeletedAt.IsZero() }

// IsRestored reports whether the marker of a Node was set by a restore onto this incarnation, or may
// have been: its setter is unknown.
func (n *Node) IsRestored() bool { return n.Edited.Has(labels.Marker) }

// Compare compares the machine of saved labels with the Node's. A Node that has had the time to
// report its whole identity, and reports none of the saved one, is another machine. A Node that
// reports nothing has no kubelet yet.
func (n *Node) Compare(saved identity.Identity) identity.Verdict {
	verdict := identity.Compare(saved, n.Identity)
	if verdict == identity.Undecided && n.Settled && !n.Identity.IsZero() {
		return identity.Other
	}
	return verdict
}

// MarkerValue returns the value of the label [labels.Marker], or nil if the Node does not have it.
func (n *Node) MarkerValue() *string {
	if n.Marker == "" && !n.hasEmptyMarker {
		return nil
	}
	return &n.Marker
}

// HasStartupTaint reports whether the startup taint is among the taints of a Node. It is false if
// these were not read.
func (n *Node) HasStartupTaint() bool { return slices.ContainsFunc(n.Taints, IsStartupTaint) }

// GetObjectMeta returns what an informer needs of an object: its name and its revision.
func (n *Node) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.Revision.String()}
}

var _ metav1.ObjectMetaAccessor = (*Node)(nil)
