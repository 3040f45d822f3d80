package txn

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Happened says whether the cluster can have had the event that t records, given the node of that name, nil if there is
// none, and the resourceVersion of all nodes after it. It cannot if that is yet to come, or if the incarnation is there in
// an older state, or not deleted at all. It is pure.
func Happened(t Transaction, live *metav1.PartialObjectMetadata, now string) bool {
	if isBefore(now, t.ResourceVersion) {
		return false
	}
	return live == nil || live.UID != t.UID || t.Type != Deleted && !isBefore(live.ResourceVersion, t.ResourceVersion)
}

func isBefore(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
