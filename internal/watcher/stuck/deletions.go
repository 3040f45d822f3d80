package stuck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/reasons"
)

// Deletions reports, by Warning events, deleted Nodes that wait for nodekeeper's finalizer. Only
// processors with --protect=finalizer remove it; the others need not watch Nodes. All exported
// fields are required, and have the same meaning as in a [Reporter]. It is safe for concurrent use.
type Deletions struct {
	Nodes  nodes.Cache
	Events events.EventRecorder
	Owner  func(node string) bool

	waiting map[types.UID]bool // at the last check; only Run uses it
}

// Run checks once a minute until ctx is done, and records an event on each owned Node that already
// waited for the finalizer at the previous check. It returns nil. Call it once.
func (d *Deletions) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, d.report, period)
	return nil
}

func (d *Deletions) report(ctx context.Context) {
	all, err := d.Nodes.All()
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for nodes whose deletion waits for the finalizer")
		return
	}
	before := d.waiting
	d.waiting = map[types.UID]bool{}
	for n := range all {
		if !nodes.WaitsForFinalizer(n) {
			continue
		}
		d.waiting[n.UID] = true
		if !before[n.UID] || !d.Owner(n.Name) {
			continue
		}
		d.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.DeletionWaits, "Save",
			"This node is not deleted until a processor with --protect=finalizer has saved its labels. Without one: %s", removeFinalizer(n.Name))
	}
}

// removeFinalizer returns the command that releases a deleted Node, whether its labels are saved or
// not.
func removeFinalizer(node string) string {
	return fmt.Sprintf(`kubectl patch node %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'`, node, nodes.Finalizer)
}
