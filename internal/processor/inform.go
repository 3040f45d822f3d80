package processor

import (
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

const (
	// informRate and informBurst limit the Normal events of a processor. When a whole fleet comes back they are
	// one write for many nodes then, however many processors there are; in quiet times every action has its event.
	informRate  = rate.Limit(1) // a second
	informBurst = 25
)

// The reasons of Normal events on Nodes.
const (
	labelsSaved    = "LabelsSaved"
	labelsRestored = "LabelsRestored"
)

// informSaved tells of labels that were saved. The resourceVersion tells one save of an incarnation from the next: client-go counts
// events on the same object as one.
func (p *Processor) informSaved(t txn.Transaction, d preserve.Decision) {
	regarding := nodeReference(t.Node, d.Record.Source)
	regarding.ResourceVersion = d.Record.Version
	p.inform(regarding, labelsSaved, "Save", "Saved %d labels, version %s.", len(d.Record.Labels), d.Record.Version)
}

// informRestored tells of labels that were put back.
func (p *Processor) informRestored(t txn.Transaction, d preserve.Decision) {
	p.inform(nodeReference(t.Node, t.UID), labelsRestored, "Restore", "Put %d labels back, version %s.", len(d.Labels), d.Marker)
}

// inform makes a Normal event on a Node, unless there were too many. Warnings do not go this way: they are never left out.
func (p *Processor) inform(regarding *corev1.ObjectReference, reason, action, format string, args ...any) {
	if !p.informing.Allow() {
		p.metrics.unsent.WithLabelValues(reason).Inc()
		return
	}
	p.events.Eventf(regarding, nil, corev1.EventTypeNormal, reason, action, format, args...)
}
