// Package stuck reports Nodes that wait for a processor, so that none does unnoticed: those that keep
// the startup taint because no processor restores their labels ([Reporter]), and those that are not
// deleted because no processor removes the finalizer ([Deletions]).
//
// It knows the former by the marker, since by default watchers do not see taints: a Node whose taint
// was removed by hand is reported until its marker is removed, too.
package stuck

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/reasons"
)

const (
	// period is the time between two looks. A gate that is closed at two of them is reported: a restore
	// takes less than a second, and another processor takes over from a dead one within half a minute.
	// client-go aggregates repeated events into one.
	period = time.Minute
	// collectTimeout is shorter than the time that Prometheus waits by default.
	collectTimeout = time.Second
)

// Reporter reports closed gates by metrics and by Warning events. All fields are required. It is
// safe for concurrent use.
type Reporter struct {
	// Cache has the metadata of all Nodes, with the notes of [nodeview.NoteGate].
	Cache client.Reader
	// Events records the events.
	Events events.EventRecorder
	// Owner reports whether this process records the events of a node, so that one of all watchers
	// does. It must be safe for concurrent use.
	Owner func(node string) bool

	closed map[types.UID]bool // at the last look; only Run uses it
}

var (
	_ prometheus.Collector = (*Reporter)(nil)

	gatedDesc = prometheus.NewDesc("nodekeeper_gated_nodes",
		"Nodes that wait behind the startup taint, by their marker. Every watcher reports all of them.", nil, nil)
	oldestDesc = prometheus.NewDesc("nodekeeper_oldest_gate_age_seconds",
		"Seconds since the first of these Nodes got that marker, or since whoever set it last changed something else of the Node. 0 if there is none.", nil, nil)
)

// Describe describes the metrics of [Reporter.Collect].
func (r *Reporter) Describe(ch chan<- *prometheus.Desc) {
	ch <- gatedDesc
	ch <- oldestDesc
}

// Collect collects how many gates are closed, and since when the first of them is. It collects
// nothing while the cache cannot be read.
func (r *Reporter) Collect(ch chan<- prometheus.Metric) {
	// A cache that is not synced yet would wait for ever.
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	gated, err := r.gated(ctx)
	if err != nil {
		return
	}
	var oldest time.Duration
	for i := range gated {
		if at := nodeview.NotedGate(&gated[i]); !at.IsZero() {
			oldest = max(oldest, time.Since(at))
		}
	}
	ch <- prometheus.MustNewConstMetric(gatedDesc, prometheus.GaugeValue, float64(len(gated)))
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest.Seconds())
}

// Run looks once a minute until ctx is done, and records an event on each Node that this process owns
// and whose gate was closed at the last look, too. It returns nil. Call it once.
func (r *Reporter) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.report, period)
	return nil
}

func (r *Reporter) report(ctx context.Context) {
	gated, err := r.gated(ctx)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for nodes with the startup taint")
		return
	}
	before := r.closed
	r.closed = make(map[types.UID]bool, len(gated))
	for i := range gated {
		n := &gated[i]
		r.closed[n.UID] = true
		if !before[n.UID] || !r.Owner(n.Name) {
			continue
		}
		r.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.GateClosed, "Restore",
			"Pods are kept away by the taint %s, as the labels are not back. A processor removes it. Without one: %s",
			nodeview.GateTaint, nodeview.OpenByHand(n.Name))
	}
}

func (r *Reporter) gated(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := r.Cache.List(ctx, list, client.MatchingLabels{labels.Marker: labels.Pending}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the nodes with the startup taint: %w", err)
	}
	return list.Items, nil
}
