package simulation

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// heldKey is a label that kubelets may not set.
const heldKey = "x.k8s.io/a"

var (
	errGated   = errors.New("gate: it is opened once everything is stored, and not before the node has its labels")
	errRefused = errors.New("webhook: no answer makes the API server refuse a kubelet")
)

// creation is the Node of a request, as the webhook leaves it.
type creation struct {
	node, requested *nodeview.Node
	seen            *nodeview.Node // by the last answer with changes: earlier answers have been replaced
	setter          setter
	gated           bool
	isKubelet       bool
	isComplete      bool // an answer has restored all labels of the Node
	applied
}

// drawWebhook draws the settings of requests that create nodes.
func (s *settings) drawWebhook(c *choices) {
	s.webhook = pick[chance](c, 0, 0, 0, 40, 60)
	if s.webhook == 0 {
		s.comesGated = pick[chance](c, 0, 0, 0, 32)
		return
	}
	// An edit during the removal of a finalizer is too late for an answer, and the next incarnation
	// may end before the edit is stored.
	s.lateEdit = 0
	s.gate = pick(c, false, false, true)
	s.uncertain = pick[chance](c, 0, 0, 16)
	s.behindHook = pick[chance](c, 0, 16, 48)
	s.kubelet = pick[chance](c, 0, 32, 56)
	s.comesGated = pick[chance](c, 0, 0, 8, 32)
	if s.personKey == "a" && s.kubelet > 0 {
		s.personKey = pick(c, "a", heldKey)
	}
}

// register creates a Node. The webhook may be down, or may be called twice; the second request then
// contains the first answer.
func (a *userActor) register(c *creation) {
	s, own := a.settings, c.node.Labels
	if a.choices.happens(s.comesGated) {
		c.gated, c.node.Marker, c.node.Gated = true, labels.Pending, true
	}
	c.isKubelet = a.choices.happens(s.kubelet) && !hasForbidden(own)
	if a.choices.happens(s.webhook) {
		a.ask(c)
		if a.choices.happens(8) {
			a.ask(c)
		}
	}
	a.world.addNode(c)
}

// ask calls the webhook once.
func (a *userActor) ask(c *creation) {
	w := a.world
	if a.choices.happens(a.settings.uncertain) {
		a.log("asks the webhook, which is uncertain")
		w.change(c, c.node.Labels, labels.Pending)
		return
	}
	r := w.records[len(w.records)-1]
	if a.choices.happens(a.settings.behindHook) {
		r = w.records[max(0, len(w.records)-1-a.choices.next(6))]
	}
	req := preserve.Request{Node: *withGate(w.identified(c.node), c.gated), Kubelet: c.isKubelet, Gate: a.settings.gate}
	if a.settings.holdsBack {
		req.HeldBack = guardedPatterns
	}
	answer := preserve.Admit(r.get(), req, policy)
	if a.mutant.admit != nil && r != nil {
		answer = a.mutant.admit(r.Record, req, answer)
	}
	a.log("asks the webhook, which gives %v, marker %q, not %q: %s", answer.Labels, answer.Marker, answer.Held, answer.Reason)
	if !answer.Restores() {
		return
	}
	if !r.hasLabels() {
		w.breaks(errBrokeP2, "a record that is not there gives %v", answer.Labels)
	}
	w.ghost.admitsTrust(w, c.node, answer.Labels)
	before := c.node.Labels
	w.change(c, answer.Labels, answer.Marker)
	c.answered(before, w.personKey)
	if c.isKubelet && hasForbidden(answer.Labels) {
		w.breaks(errRefused, "it gets %v", answer.Labels)
	}
}

// hasForbidden reports whether kubelets may not set some of the labels.
func hasForbidden(own map[string]string) bool {
	_, isHeld := own[heldKey]
	_, isTrusted := own[restrictedKey]
	return isHeld || isTrusted
}

// change applies the changes of an answer. The webhook is the field manager of the changed fields.
func (w *world) change(c *creation, own map[string]string, marker string) {
	before, n, gate := c.node, *c.node, marker == labels.Pending
	n.Labels, n.Marker, n.Gated = maps.Clone(own), marker, gate
	requested, left := everything(before), everything(&n)
	set := labels.KeysOf(func(yield func(string) bool) {
		for key, value := range left {
			if former, wasThere := requested[key]; (!wasThere || former != value) && !labels.IsTaint(key) && !yield(key) {
				return
			}
		}
	})
	machine, unclear := before.Machine.Same(before.Labels, n.Labels), before.Unclear
	value, isThere := n.Labels[agentTaint]
	former, wasThere := before.Labels[agentTaint]
	if isThere && (gate != c.gated || !wasThere || former != value) { // it has written the list of taints
		machine, unclear = "", agentTaint
	}
	n.Machine, n.Unclear, n.ActedAt = machine, unclear, w.acted
	n.Admitted = before.Admitted.Same(requested, left).Union(set)
	c.seen, c.node, c.gated, c.isComplete = before, &n, gate, !gate
}

// withGate returns a Node with the startup taint if it has one. It may change n.
func withGate(n *nodeview.Node, isGated bool) *nodeview.Node {
	if isGated {
		n.Taints, n.Gated = []corev1.Taint{nodeview.StartupTaint()}, true
	}
	return n
}

// whole returns the live Node as it is read with its spec.
func (w *world) whole(n *nodeview.Node) *nodeview.Node {
	return withGate(w.identified(n), w.gated)
}

// setAdmitted removes the fields from the webhook's ownership that others have changed.
func (w *world) setAdmitted(n *nodeview.Node) {
	if admitted := w.node.Admitted; admitted != "" {
		n.Admitted = admitted.Same(everything(w.node), everything(n))
	}
}

// setRecord replaces the current record.
func (w *world) setRecord(r *storedRecord) {
	w.record = r
	w.records = append(w.records, r)
}

// open removes the startup taint and the marker from a Node. It returns an error if the Node has
// changed since it was read.
func (a *processorActor) open(read *nodeview.Node, wanted map[string]string) (*nodeview.Node, error) {
	w := a.world
	if !w.takes(read, wanted) {
		return nil, nodes.ErrStale
	}
	if !a.isOvertaken() {
		w.ghost.opens(w, read, wanted, a.read)
	}
	w.patch(read, wanted)
	a.log("  opens the gate of %s@%s", read.UID, w.node.Revision)
	n := w.whole(w.node)
	if a.isLost() {
		return nil, errLost
	}
	return n, nil
}

// actOnGate performs an action of a user on the startup taint.
func (a *userActor) actOnGate(action userAction) {
	w := a.world
	switch {
	case action == removesTaint && w.gated:
		w.relabel(nil)
		w.gated = false
		a.log("removes the startup taint of %s", nodeText(w.node))
	// Before the restore is noted, changing the marker requests the restore again.
	case action == closesGate && !w.gated && w.isNoted():
		w.gated = true
		w.relabel(func(own map[string]string) { own[labels.Marker] = labels.Pending })
		w.closed = number(w.node.Revision.String())
		a.log("closes the gate of %s", nodeText(w.node))
	case action == removesPending && w.mayLosePending() && w.node.Marker == labels.Pending:
		w.relabel(func(own map[string]string) { delete(own, labels.Marker) })
		a.log("removes the marker of %s, which is pending", nodeText(w.node))
	}
}

// mayLosePending reports whether the gate is opened even without the marker, since it is recorded
// that the Node was created with it, or has it since it was closed again. An earlier transaction
// may have been decided while the gate was open.
func (w *world) mayLosePending() bool {
	return !w.gated || slices.ContainsFunc(w.queue, func(t *storedTxn) bool {
		return t.UID == w.node.UID && preserve.ComesGated(t.Transaction) && number(t.Revision.String()) >= w.closed
	})
}

// isGateKnown reports whether a transaction, other than the one of the given revision, shows that
// an incarnation was created with the startup taint.
func (w *world) isGateKnown(uid types.UID, but revision.Revision) bool {
	return slices.ContainsFunc(w.queue, func(t *storedTxn) bool {
		return t.UID == uid && preserve.ComesGated(t.Transaction) && t.Revision != but
	})
}

// isOpenedByAnother reports whether the only effect of a transaction is to open the gate, and
// another transaction has that effect, too: one in the queue, or the one with which a watcher will
// record that the gate was closed.
func (w *world) isOpenedByAnother(t txn.Transaction, d preserve.Decision) bool {
	return d.Action == preserve.Open && (number(t.Revision.String()) < w.closed || w.isGateKnown(t.UID, t.Revision))
}

// cameWith returns the Node's own contents, without those that the webhook has added.
func cameWith(n *nodeview.Node) labels.Side {
	own, _ := split(n.Labels)
	for key := range n.Admitted.All() {
		delete(own, key)
	}
	return labels.Side{Labels: own, Machine: n.Machine, Unclear: n.Unclear}
}

// admitted must be called after a Node was created. It is only known to own its labels once the
// record notes that: the answer may have come from an earlier record.
func (g *ghost) admitted(w *world, c *creation) {
	if c.isComplete {
		l := &g.by[w.incarnation]
		l.restored, l.asked = w.rv, c
	}
}

// checkAdmitted checks an incarnation once the record notes that it had its labels when it was
// created.
func (g *ghost) checkAdmitted(w *world, incarnation int, c *creation) {
	given, _ := split(c.node.Labels)
	floor := g.by[incarnation].floor
	// The end of a protected Node does not wait for watchers: it overtakes what is stored between the
	// processor's read of the queue and its write of the record.
	if e := g.ending; e.incarnation == incarnation && e.owner == g.owner {
		floor = min(floor, e.stored)
	}
	if !g.had(w, floor, g.gives(w, incarnation, []labels.Side{cameWith(c.seen)}, given)) {
		w.breaks(errBrokeP1, "%s was admitted with %v, which u%d did not have in the end", c.node.UID, given, g.owner)
	}
}

// opens must be called before a write that removes the startup taint. The Node must then have the
// labels that a restore would set, from the current record or from another one since the processor
// read the record.
func (g *ghost) opens(w *world, read *nodeview.Node, wanted map[string]string, since int) {
	if !read.Gated {
		return
	}
	if g.strict {
		since = len(w.records) - 1
	}
	own, _ := split(read.Labels)
	given, _ := split(wanted)
	if !slices.ContainsFunc(w.records[since:], func(r *storedRecord) bool {
		if !r.hasLabels() || r.Source == read.UID || r.Restored.UID == read.UID {
			return maps.Equal(given, own)
		}
		return slices.ContainsFunc(w.livesOf(read), func(live labels.Side) bool {
			return maps.Equal(given, plain(policy.Restored(live, preserve.Saved(r.Record))))
		})
	}) {
		w.breaks(errGated, "%s is let in with %v", read.UID, given)
	}
}

// checkGate checks that no Node is left with the startup taint.
func (g *ghost) checkGate(w *world) {
	if n := w.node; n != nil && (w.gated || n.Marker == labels.Pending) {
		w.breaks(errGated, "%s is left with the marker %q and the taint: %v", n.UID, n.Marker, w.gated)
	}
}
