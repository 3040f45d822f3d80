package stuck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Unfollowed reports, by Warning events, Nodes whose record follows another Node although no
// transaction of them is left: the record has been replaced, for example by one from a backup. All
// fields are required; Events and Owner have the same meaning as in a [Reporter]. It is safe for
// concurrent use.
type Unfollowed struct {
	// Cache has the metadata of all Nodes, and the ConfigMaps of both namespaces.
	Cache                                   client.Reader
	TransactionNamespace, MetadataNamespace string
	Events                                  events.EventRecorder
	Owner                                   func(node string) bool

	before map[types.UID]bool // at the last check; only Run uses it
}

// Run checks once a minute until ctx is done, and records an event on each owned Node that was
// already not followed at the previous check. It returns nil. Call it once.
func (u *Unfollowed) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, u.report, period)
	return nil
}

func (u *Unfollowed) report(ctx context.Context) {
	all, err := u.all(ctx)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for records that do not follow their nodes")
		return
	}
	before := u.before
	u.before = make(map[types.UID]bool, len(all))
	for _, n := range all {
		u.before[n.UID] = true
		if before[n.UID] {
			u.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.RecordUnfollowed, "Save",
				"The record of this node follows another Node of its name: somebody has replaced it. To save the labels that the node has now: kubectl nodekeeper save %s", n.Name)
		}
	}
}

// all returns the owned Nodes whose record was replaced.
func (u *Unfollowed) all(ctx context.Context) (all []*metav1.PartialObjectMetadata, err error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := u.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	queue := &corev1.ConfigMapList{}
	if err := u.Cache.List(ctx, queue, client.InNamespace(u.TransactionNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the transactions: %w", err)
	}
	pending := map[string]bool{}
	for i := range queue.Items {
		if hash, _, ok := txn.SplitName(queue.Items[i].Name); ok {
			pending[hash] = true
		}
	}
	for i := range list.Items {
		n := &list.Items[i]
		if !u.Owner(n.Name) || !nodeview.Selected(n) || n.DeletionTimestamp != nil || pending[txn.NodeHash(n.Name)] {
			continue
		}
		isReplaced, err := u.isReplaced(ctx, n)
		if err != nil {
			return nil, err
		}
		if isReplaced {
			all = append(all, n)
		}
	}
	return all, nil
}

// isReplaced reports whether the record of a Node follows another Node. A missing or unreadable
// record is reported elsewhere.
func (u *Unfollowed) isReplaced(ctx context.Context, n *metav1.PartialObjectMetadata) (bool, error) {
	cm := &corev1.ConfigMap{}
	if err := u.Cache.Get(ctx, types.NamespacedName{Namespace: u.MetadataNamespace, Name: n.Name}, cm); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("reading the record of node %q: %w", n.Name, err)
	}
	r, err := record.Parse(cm)
	return err == nil && preserve.FollowsAnother(*r, n.UID), nil
}
