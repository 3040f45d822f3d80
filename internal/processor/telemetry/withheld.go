package telemetry

import (
	"context"
	"strings"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/txn"
)

// maxNamedBytes bounds the keys in the note of an event.
const maxNamedBytes = 400

// Withheld implements [apply.Observer].
func (o *Observer) Withheld(ctx context.Context, t txn.Transaction, held preserve.Held) {
	logf.FromContext(ctx).Info("Withheld labels of a machine", "uid", t.UID, "keys", string(held.Keys), "why", string(held.Why))
	node, keys := nodes.Reference(t.Node, t.UID), named(held.Keys)
	const byHand = "If this node may have them, run kubectl label node %s KEY=VALUE; kubectl nodekeeper show %s has the values."
	switch held.Why {
	case preserve.Waiting:
		o.inform(node, reasons.RestrictedLabelsWaiting, "Restore", "%s", Note("%s: restored when this node reports the spec.providerID or status.nodeInfo.systemUUID of the machine "+
			"that they were saved from. It has not reported a comparable identity yet.", keys))
	case preserve.OtherMachine:
		// Usual for the former and suspicious for the latter, since others trust them.
		if usual := held.Keys.Where(func(key string) bool { return !labels.Restricted(key) }); usual != "" {
			o.inform(node, reasons.MachineLabelsWithheld, "Restore", "%s", Note("%s: kept for the machine that they were saved from, which is not this one.", named(usual)))
		}
		if trusted := held.Keys.Where(labels.Restricted); trusted != "" {
			o.Warn(node, reasons.RestrictedLabelsWithheld, "Restore", "%s: not restored, since they were saved from another machine. "+byHand, named(trusted), t.Node, t.Node)
		}
	case preserve.UnknownMachine:
		o.Warn(node, reasons.RestrictedLabelsWithheld, "Restore", "%s: not restored, since the machine that they were saved from is unknown. "+byHand, keys, t.Node, t.Node)
	case preserve.Dropped:
		o.Warn(node, reasons.RestrictedLabelsDropped, "Restore", "%s: not restored, because of --restricted-labels=drop.", keys)
	case preserve.NoRoom:
		o.Warn(node, reasons.RestrictedLabelsDropped, "Restore", "%s: not restored, and forgotten, since a record has no room for so many withheld labels. "+
			"Set them again with kubectl label node.", keys)
	}
}

// Refused implements [apply.Observer].
func (o *Observer) Refused(ctx context.Context, t txn.Transaction, keys labels.Keys, err error) {
	logf.FromContext(ctx).Error(err, "Set aside a label that the API server refused", "uid", t.UID, "keys", string(keys))
	o.metrics.setAside.Inc()
	o.Warn(nodes.Reference(t.Node, t.UID), reasons.LabelRefused, "Restore", "%s: not restored, because the API server refused it. Everything else is restored. It stays saved and is "+
		"tried again when the node returns next; kubectl nodekeeper show %s has its value. The answer was: %v", named(keys), t.Node, err)
}

// named returns keys in a readable form, as many as fit in an event.
func named(keys labels.Keys) string {
	var described []string
	for key := range keys.All() {
		described = append(described, labels.Described(key))
	}
	text := strings.Join(described, ", ")
	if len(text) > maxNamedBytes {
		text = text[:maxNamedBytes] + "…"
	}
	return text
}
