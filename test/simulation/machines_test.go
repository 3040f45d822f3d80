package simulation

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// The trust label is one of these: a restricted label, or one of --same-machine-labels.
const (
	restrictedKey = "node-role.kubernetes.io/t"
	stateKey      = "state.example.com/t"
)

var errBrokeP8 = errors.New("P8: a trust label is never put onto another machine, is put back onto the same one, and is not lost meanwhile")

// machine is the machine of an incarnation. byHand is a Node without a machine, which never reports
// an identity.
type machine int

const (
	byHand machine = iota
	machineA
	machineB
)

// identity returns the identity that the Node of a machine reports.
func (m machine) identity() identity.Identity {
	if m == byHand {
		return identity.Identity{}
	}
	return identity.Identity{SystemUUID: "machine-" + strconv.Itoa(int(m))}
}

// reported returns the identity that the live Node currently reports.
func (w *world) reported() identity.Identity {
	if !w.hasReported {
		return identity.Identity{}
	}
	return w.machine.identity()
}

// identified returns a Node with the identity that the live one reports.
func (w *world) identified(n *nodeview.Node) *nodeview.Node {
	with := *n
	with.Identity, with.IsWhole = w.reported(), true
	return &with
}

// recheck checks whether the Node has reported its machine, if labels wait for that. It returns
// false if there is nothing to do.
func (a *processorActor) recheck() bool {
	r := a.record.get()
	if r == nil {
		return false
	}
	t, isWaiting := preserve.Recheck(*r)
	if !isWaiting || a.mutant.neverRechecks {
		return false
	}
	if n := a.world.liveNode(); n != nil && a.decision(t, r, n).Action == preserve.Nothing {
		return false
	}
	a.log("rechecks the identity of %s", t.UID)
	_, _ = a.apply([]txn.Transaction{t})
	return true
}

// trust is the ghost's state of the trust label.
type trust struct {
	isOn     bool // schedules use the label
	isUnsure bool // a record was removed: from then on only restores onto a wrong machine are errors
	isSaved  bool // a user has set it, and it has not been removed since
	value    string
	of       machine // the machine that it was set on
}

// setsTrust must be called before a user sets the label on the live Node, or removes it.
func (g *ghost) setsTrust(w *world, value string) {
	g.trust.isSaved, g.trust.value, g.trust.of = value != "", value, w.machine
}

// givesTrust must be called before a restore.
func (g *ghost) givesTrust(w *world, read *nodeview.Node, wanted map[string]string) {
	before, had := read.Labels[w.trustKey]
	given, gets := wanted[w.trustKey]
	if read.Admitted.Set()[w.trustKey] { // the webhook may have used a stale record
		had = false
	}
	if had && (!gets || before != given) {
		w.breaks(errBrokeP8, "%s has %s, and gets %q", read.UID, before, given)
	}
	if !gets || before == given && (had || g.isRefused(w, trustIndex)) {
		return
	}
	g.checkMachine(w, read.UID, given)
	if !g.strict || g.trust.isUnsure || g.by[g.owner].isLoose {
		return
	}
	switch t := &g.trust; {
	case !t.isSaved || given != t.value:
		w.breaks(errBrokeP8, "%s gets %s, which has been removed or replaced", read.UID, given)
	case t.of == byHand && w.hasReported:
		t.of = w.machine
	case t.of != byHand && (!w.hasReported || t.of != w.machine):
		w.breaks(errBrokeP8, "%s of machine %d gets %s, which machine %d has", read.UID, w.machine, given, t.of)
	}
}

// admitsTrust must be called before the webhook's answer changes the Node of a request. The webhook
// may use a stale record, so only the machine counts.
func (g *ghost) admitsTrust(w *world, requested *nodeview.Node, given map[string]string) {
	if value, gets := given[w.trustKey]; gets && value != requested.Labels[w.trustKey] {
		g.checkMachine(w, "a Node that is created", value)
	}
}

// checkMachine checks a trust label that a Node gets. If a user has set it on a machine other than
// [byHand], the Node must be that machine.
func (g *ghost) checkMachine(w *world, uid types.UID, given string) {
	maker, _ := strconv.Atoi(given[1:2])
	if m := machine(maker); m != byHand && (!w.hasReported || w.machine != m) {
		w.breaks(errBrokeP8, "%s of machine %d gets %s", uid, w.machine, given)
	}
}

// savesTrust must be called before a record is written. If an incarnation was gone before it was
// read, its machine is unknown, and its label is not restored.
//
// A Node may get the label by its name, since the former Node had no identity. The label then
// belongs to its machine from when the record contains the identity.
func (g *ghost) savesTrust(w *world, r record.Record) {
	if t := &g.trust; t.of == byHand && t.isSaved && r.Labels[w.trustKey] == t.value && !r.Identity.IsZero() {
		t.of = g.by[incarnationOf(r.Identity.UID)].machine
		if r.Identity.Identity != t.of.identity() {
			w.breaks(errBrokeP8, "in the record %s is %q, but it is machine %d", r.Identity.UID, r.Identity.SystemUUID, t.of)
		}
	}
	g.trust.isUnsure = g.trust.isUnsure || slices.ContainsFunc(r.Withheld, func(set record.Withheld) bool {
		_, hasTrust := set.Labels[w.trustKey]
		return hasTrust && set.Identity.IsZero()
	})
}

// checkTrust compares the final state with the expected one.
func (g *ghost) checkTrust(w *world) {
	t := g.trust
	if !t.isOn || !g.strict || t.isUnsure || w.broken != nil || !w.record.hasLabels() || g.by[g.owner].isLoose {
		return
	}
	saved, isSaved := w.record.All()[w.trustKey]
	if w.node == nil || g.recordsUpdates {
		if isSaved != t.isSaved || isSaved && saved != t.value {
			w.breaks(errBrokeP8, "saved is %q, and it ought to be %q", saved, t.value)
		}
	}
	if w.node == nil {
		return
	}
	if _, isThere := w.record.Labels[w.trustKey]; isThere && w.record.Identity.UID != w.node.UID {
		w.breaks(errBrokeP8, "the record does not have the identity of %s", w.node.UID)
	}
	has, isThere := w.node.Labels[w.trustKey]
	gets := t.isSaved && (t.of == byHand || w.hasReported && t.of == w.machine)
	if (gets != isThere || gets && has != t.value) && !g.isRefused(w, trustIndex) {
		w.breaks(errBrokeP8, "%s of machine %d has %q, and %q is of machine %d", w.node.UID, w.machine, has, t.value, t.of)
	}
}

// plain returns labels without the trust label and the guarded ones.
func plain(own map[string]string) map[string]string {
	own = maps.Clone(own)
	maps.DeleteFunc(own, isApart)
	return own
}

// split is like labels.Split, without the trust label and the guarded ones.
func split(all map[string]string) (map[string]string, string) {
	own, marker := labels.Split(all)
	maps.DeleteFunc(own, isApart)
	return own, marker
}

// isTrust reports whether a label is the trust label.
func isTrust(key, _ string) bool { return key == restrictedKey || key == stateKey }

// isApart reports whether the ghost follows a label apart from the others.
func isApart(key, value string) bool { return isTrust(key, value) || isGuarded(key) }

// hasEffect reports whether a decision has an effect that is due to the transaction. Labels that
// wait for the Node do so in the record, so they are not lost without the transaction.
func hasEffect(t txn.Transaction, r *record.Record, d preserve.Decision) bool {
	if r == nil || t.Type != txn.Added || d.Action == preserve.Nothing || d.Action == preserve.Open {
		return d.Action != preserve.Nothing
	}
	noted := d.Record
	noted.Identity, noted.Withheld = r.Identity, r.Withheld
	if t.UID != r.Source && t.UID != r.Restored.UID {
		return d.Action == preserve.Restore || d.Again || !noted.Equal(*r) // a recheck also finds that no labels wait any more
	}
	return d.Action == preserve.Save && !noted.Equal(*r) || d.Action == preserve.Restore && len(r.Withheld) == 0
}

// drawMachine draws the machine that registers. The first one may be trusted by a manifest.
func (a *userActor) drawMachine(own map[string]string) {
	w := a.world
	w.machine, w.hasReported = byHand, false
	if !a.choices.happens(a.settings.trust) {
		return
	}
	w.machine = pick(&a.choices, machineA, machineB, machineA)
	w.hasReported = pick(&a.choices, true, true, false)
	if a.settings.lateMachine {
		w.hasReported = w.incarnation == 0
		w.machine = pick(&a.choices, machineA, machineA, machineB)
	}
	if w.incarnation == 0 && w.hasReported && a.choices.next(2) == 1 {
		own[w.trustKey] = "m" + strconv.Itoa(int(w.machine)) + "-0"
		w.ghost.setsTrust(w, own[w.trustKey])
	}
}

// actOnMachine performs an action of a user or a machine that concerns trust.
func (a *userActor) actOnMachine(action userAction) {
	w := a.world
	_, has := w.node.Labels[w.trustKey]
	switch {
	case action == reportsMachine && w.machine != byHand && !w.hasReported:
		w.relabel(nil)
		w.hasReported = true
		a.log("reports that it is machine %d, %s", w.machine, nodeText(w.node))
	// Before the restore it would be overwritten. If the machine has not reported its identity, the
	// record cannot have it, either.
	case action == setsTrust && w.ghost.owns(w) && (w.machine == byHand || w.hasReported):
		value := "m" + strconv.Itoa(int(w.machine)) + "-" + strconv.Itoa(w.rv)
		w.ghost.setsTrust(w, value)
		w.relabel(func(own map[string]string) { own[w.trustKey] = value })
		a.log("trusts %s: %s", nodeText(w.node), value)
	case action == removesTrust && has && w.isNoted():
		// A label that was set and removed before it was saved leaves no trace.
		w.ghost.trust.isUnsure = w.ghost.trust.isUnsure || w.record.All()[w.trustKey] != w.node.Labels[w.trustKey]
		w.ghost.setsTrust(w, "")
		w.relabel(func(own map[string]string) { delete(own, w.trustKey) })
		a.log("trusts %s no more", nodeText(w.node))
	}
}
