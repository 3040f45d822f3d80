package watcher

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// Happened says whether the cluster can have had the event that t records, given the node of that name, nil if there is
// none, and the resourceVersion of all nodes after it. It cannot if that is yet to come, or if the incarnation is there in
// an older state, or not deleted at all. It is pure.
func Happened(t txn.Transaction, live *metav1.PartialObjectMetadata, now string) bool {
	if isBefore(now, t.ResourceVersion) {
		return false
	}
	return live == nil || live.UID != t.UID || t.Type != txn.Deleted && !isBefore(live.ResourceVersion, t.ResourceVersion)
}

func isBefore(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// confirm returns an error unless a fresh read says that the cluster can have had the event. If it cannot, its history went back.
func (w *Watcher) confirm(ctx context.Context, t txn.Transaction) error {
	// A list and not a get: it tells the resourceVersion now even if the node is gone.
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := w.client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: t.Node}); err != nil {
		return fmt.Errorf("confirming an event of node %q: %w", t.Node, err)
	}
	var live *metav1.PartialObjectMetadata
	if len(list.Items) > 0 {
		live = &list.Items[0]
	}
	if !Happened(t, live, list.ResourceVersion) {
		return w.history.Lost(fmt.Sprintf("node %q was seen %s at resourceVersion %s and was not", t.Node, t.Type, t.ResourceVersion))
	}
	return nil
}
