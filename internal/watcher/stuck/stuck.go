// Package stuck reports Nodes that wait for a processor: those that keep the startup taint because
// no processor restores their labels ([Reporter]), and those that are not deleted because no
// processor removes the finalizer ([Deletions]). It also reports Nodes whose record has been replaced
// ([Unfollowed]).
//
// It identifies the former by the marker, since by default watchers do not see taints. A Node whose
// taint was removed manually is reported until its marker is removed, too.
package stuck

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/reasons"
)

const (
	// period is the time between two checks. A Node that is gated at two of them is reported: a
	// restore takes less than a second, and another processor takes over from a crashed one within
	// half a minute. client-go aggregates repeated events into one.
	period = time.Minute
)

// Reporter reports gated Nodes by metrics and by Warning events. All fields are required. It is
// safe for concurrent use.
type Reporter struct {
	// Nodes has all Nodes.
	Nodes nodes.Cache
	// Events records the events.
	Events events.EventRecorder
	// Owner reports whether this process records the events of a node, so that exactly one watcher
	// does. It must be safe for concurrent use.
	Owner func(node string) bool

	gatedBefore map[types.UID]bool // at the last check; only Run uses it
}

var (
	_ prometheus.Collector = (*Reporter)(nil)

	gatedDesc = prometheus.NewDesc("nodekeeper_gated_nodes",
		"Nodes that wait behind the startup taint, by their marker. Every watcher reports all of them.", nil, nil)
	oldestDesc = prometheus.NewDesc("nodekeeper_oldest_gate_age_seconds",
		"Seconds since the first of these Nodes got that marker, or since its field manager last changed another field of the Node. 0 if there are none.", nil, nil)
)

// Describe describes the metrics of [Reporter.Collect].
func (r *Reporter) Describe(ch chan<- *prometheus.Desc) {
	ch <- gatedDesc
	ch <- oldestDesc
}

// Collect collects the number of gated Nodes, and the age of the oldest. It collects nothing while
// the cache cannot be read.
func (r *Reporter) Collect(ch chan<- prometheus.Metric) {
	gated, err := r.gated()
	if err != nil {
		return
	}
	var oldest time.Duration
	for _, n := range gated {
		if !n.GatedSince.IsZero() {
			oldest = max(oldest, time.Since(n.GatedSince))
		}
	}
	ch <- prometheus.MustNewConstMetric(gatedDesc, prometheus.GaugeValue, float64(len(gated)))
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest.Seconds())
}

// Run checks once a minute until ctx is done, and records an event on each owned Node that was
// already gated at the previous check. It returns nil. Call it once.
func (r *Reporter) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.report, period)
	return nil
}

func (r *Reporter) report(ctx context.Context) {
	gated, err := r.gated()
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for nodes with the startup taint")
		return
	}
	before := r.gatedBefore
	r.gatedBefore = make(map[types.UID]bool, len(gated))
	for _, n := range gated {
		r.gatedBefore[n.UID] = true
		if !before[n.UID] || !r.Owner(n.Name) {
			continue
		}
		r.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.GateClosed, "Restore",
			"The taint %s keeps pods away until the labels are restored. A processor removes it. Without one: %s",
			nodeview.StartupTaintKey, nodeview.OpenCommands(n.Name))
	}
}

func (r *Reporter) gated() (gated []*nodeview.Node, err error) {
	all, err := r.Nodes.All()
	if err != nil {
		return nil, fmt.Errorf("listing the nodes with the startup taint: %w", err)
	}
	for n := range all {
		if n.Marker == labels.Pending {
			gated = append(gated, n)
		}
	}
	return gated, nil
}
