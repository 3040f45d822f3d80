package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const (
	// informRate and informBurst limit the Normal events of a processor. When a whole fleet returns,
	// most nodes get no event; in quiet times every action gets one.
	informRate  = rate.Limit(1) // per second
	informBurst = 25

	// maxNoteBytes is the maximum length of the note of an event in bytes (noteLengthLimit in
	// k8s.io/kubernetes/pkg/apis/core/validation/events.go).
	maxNoteBytes = 1024
)

// Observer reports the actions of an [apply.Applier] by logs, metrics and events. It is safe for
// concurrent use.
type Observer struct {
	events    events.EventRecorder
	metrics   metrics
	informing *rate.Limiter // limits Normal events
}

var _ apply.Observer = (*Observer)(nil)

// NewObserver returns an Observer and registers its metrics.
func NewObserver(recorder events.EventRecorder, registry prometheus.Registerer) (*Observer, error) {
	o := &Observer{events: recorder, metrics: newMetrics(), informing: rate.NewLimiter(informRate, informBurst)}
	m := o.metrics
	return o, Register(registry, m.applied, m.restore, m.refused, m.setAside, m.conflicts, m.unsent)
}

// Applied implements [apply.Observer].
func (o *Observer) Applied(ctx context.Context, t txn.Transaction, d preserve.Decision, node *nodeview.Node) {
	log := logf.FromContext(ctx).WithValues("type", t.Type, "resourceVersion", t.Revision, "uid", t.UID, "reason", d.Reason)
	o.metrics.countApplied(t, d.Action)
	switch d.Action {
	case preserve.Nothing:
		log.V(1).Info("Dropped transaction")
	case preserve.Save:
		log.Info("Saved labels", "count", len(d.Record.Labels), "version", d.Record.Revision)
		if !d.IsNote() {
			o.informSaved(t, d)
		}
	case preserve.Open:
		log.Info("Removed the startup taint")
	case preserve.Restore:
		o.metrics.restore.Observe(max(0, time.Since(returnedAt(node.Created, t.ObservedAt)).Seconds()))
		log.Info("Restored labels", "count", len(d.Labels), "version", d.Marker)
		o.inform(nodes.Reference(t.Node, t.UID), reasons.LabelsRestored, "Restore", "Restored %d labels, version %s.", len(d.Labels), d.Marker)
	}
}

// Renewed implements [apply.Observer].
func (o *Observer) Renewed(ctx context.Context, t txn.Transaction) {
	logf.FromContext(ctx).Info("Renewed a record whose revision was higher than that of all Nodes", "type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
	o.Warn(nodes.Reference(t.Node, t.UID), reasons.RecordAhead, "Save",
		"The saved labels of this node had a version that is later than every Node: the datastore of the cluster was replaced, or the version was mistyped. "+
			"Label edits are saved again from now on. Earlier ones may be lost if the node was deleted since.")
}

// NotGivenBack implements [apply.Observer].
func (o *Observer) NotGivenBack(ctx context.Context, t txn.Transaction, err error) {
	logf.FromContext(ctx).Error(err, "Left restored labels to nodekeeper's field manager: tools that apply them may report conflicts, or not remove them", "uid", t.UID)
}

// Conflicted implements [apply.Observer].
func (o *Observer) Conflicted(err error) {
	object := recordObject
	if errors.Is(err, nodes.ErrStale) {
		object = nodeObject
	}
	o.metrics.conflicts.WithLabelValues(object).Inc()
}

// TooLarge implements [apply.Observer].
func (o *Observer) TooLarge(ctx context.Context, t txn.Transaction, err error) {
	logf.FromContext(ctx).Error(err, "Dropped a transaction: its labels do not fit in a record", "type", t.Type, "resourceVersion", t.Revision, "uid", t.UID)
	o.Warn(nodes.Reference(t.Node, t.UID), reasons.LabelsTooLarge, "Save",
		"The labels of this node are not kept: they do not fit a ConfigMap, whose values may have %d bytes. Remove labels that are not needed.", txn.MaxDataBytes)
}

// Failed emits a Warning event for an error of [apply.Applier.Apply] that users must know about.
func (o *Observer) Failed(err error) {
	if refused, ok := errors.AsType[*apply.RefusedError](err); ok {
		o.metrics.refused.Inc()
		o.Warn(nodes.Reference(refused.Node, refused.UID), reasons.LabelsRestoreFailed, "Restore", "The saved labels could not be restored, retrying: %v", err)
	}
	if unreadable, ok := errors.AsType[*apply.UnreadableError](err); ok {
		advice := ""
		if record.OwnerOf(unreadable.Object) == record.KubeStateRS {
			advice = ". To take over its labels: kubectl nodekeeper import --from kube-state-rs"
		}
		o.events.Eventf(unreadable.Object, nil, corev1.EventTypeWarning, reasons.RecordUnreadable, "Apply", "%s",
			Note("Node %s waits for its labels until this record is corrected or deleted: %v%s", unreadable.Object.Name, err, advice))
	}
}

// Warn emits a Warning event. Warning events are not rate limited.
func (o *Observer) Warn(regarding *corev1.ObjectReference, reason, action, format string, args ...any) {
	o.events.Eventf(regarding, nil, corev1.EventTypeWarning, reason, action, "%s", Note(format, args...))
}

// informSaved emits the event of labels that were saved. The resourceVersion distinguishes the
// saves of an incarnation: client-go aggregates events on the same object.
func (o *Observer) informSaved(t txn.Transaction, d preserve.Decision) {
	regarding := nodes.Reference(t.Node, d.Record.Source)
	regarding.ResourceVersion = d.Record.Revision.String()
	o.inform(regarding, reasons.LabelsSaved, "Save", "Saved %d labels, version %s.", len(d.Record.Labels), d.Record.Revision)
}

// inform emits a Normal event on a Node, unless the rate limit is exceeded.
func (o *Observer) inform(regarding *corev1.ObjectReference, reason, action, format string, args ...any) {
	if !o.informing.Allow() {
		o.metrics.unsent.WithLabelValues(reason).Inc()
		return
	}
	o.events.Eventf(regarding, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

// Note formats the note of an event, truncated to the maximum length.
func Note(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	// Truncation may split a character, and the API server would replace the invalid UTF-8 by
	// something longer.
	return strings.ToValidUTF8(text[:min(len(text), maxNoteBytes)], "")
}
