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
	"nodekeeper.dev/internal/reasons"
)

// Deletions reports by Warning events the deleted Nodes that wait for nodekeeper's finalizer, which
// only processors with --protect=finalizer remove: the others need not see Nodes. All exported
// fields are required, and mean what they mean of a [Reporter]. It is safe for concurrent use.
type Deletions struct {
	Cache  client.Reader
	Events events.EventRecorder
	Owner  func(node string) bool

	waiting map[types.UID]bool // at the last look; only Run uses it
}

// Run looks once a minute until ctx is done, and records an event on each Node that this process owns
// and that waited for the finalizer at the last look, too. It returns nil. Call it once.
func (d *Deletions) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, d.report, period)
	return nil
}

func (d *Deletions) report(ctx context.Context) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := d.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for nodes whose deletion waits for the finalizer")
		return
	}
	before := d.waiting
	d.waiting = map[types.UID]bool{}
	for i := range list.Items {
		n := &list.Items[i]
		if !nodes.WaitsForFinalizer(n) {
			continue
		}
		d.waiting[n.UID] = true
		if !before[n.UID] || !d.Owner(n.Name) {
			continue
		}
		d.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.DeletionWaits, "Save",
			"This node is not deleted before a processor with --protect=finalizer has saved its labels. Without one: %s", letGo(n.Name))
	}
}

// letGo returns the command that lets a deleted Node go, whether its labels are saved or not.
func letGo(node string) string {
	return fmt.Sprintf(`kubectl patch node %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'`, node, nodes.Finalizer)
}
