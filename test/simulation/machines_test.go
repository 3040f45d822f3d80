package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// trustKey is a restricted label.
const trustKey = "node-role.kubernetes.io/t"

var errBrokeP8 = errors.New("P8: a trust label is never put onto another machine, is put back onto the same one, and is not lost meanwhile")

// machine is which machine an incarnation is; byHand is a Node without one, which never says anything.
type machine int

const (
	byHand machine = iota
	machineA
	machineB
)

// identity is what the Node of a machine says.
func (m machine) identity() identity.Identity {
	if m == byHand {
		return identity.Identity{}
	}
	return identity.Identity{SystemUUID: "machine-" + strconv.Itoa(int(m))}
}

// says is what the Node says now.
func (w *world) says() identity.Identity {
	if !w.hasSaid {
		return identity.Identity{}
	}
	return w.machine.identity()
}

// identified returns a Node with what the live one says.
func (w *world) identified(n *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	with := *n
	with.Annotations = maps.Clone(n.Annotations)
	identity.Note(&with, w.says())
	return &with
}

// GetIdentified implements [apply.Nodes].
func (a *processorActor) GetIdentified(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	n, err := a.Get(ctx, name)
	if n == nil || err != nil {
		return n, err
	}
	a.tell("    which says %q", a.world.says().SystemUUID)
	return a.world.whole(n), nil
}

// look looks whether the Node says by now which machine it is, if labels wait for that. False: there is nothing to do.
func (a *processorActor) look() bool {
	r := a.record.get()
	if r == nil {
		return false
	}
	t, isWaiting := preserve.Recheck(*r)
	if !isWaiting || a.mutant.neverLooks {
		return false
	}
	if n := a.world.liveNode(); n != nil && a.decision(t, r, n).Action == preserve.Nothing {
		return false
	}
	a.tell("looks whether %s says which machine it is", t.UID)
	_, _ = a.apply([]txn.Transaction{t})
	return true
}

// trust is what the ghost knows of the trust label.
type trust struct {
	isOn     bool // whether schedules have it
	isUnsure bool // whether a record was removed since: then only what is put onto a wrong machine is looked at
	isSaved  bool // whether somebody has set it, and nobody has removed it since
	value    string
	of       machine // whose it is
}

// sets is told before a person sets it on the live Node, or removes it.
func (g *ghost) setsTrust(w *world, value string) {
	g.trust.isSaved, g.trust.value, g.trust.of = value != "", value, w.machine
}

// givesTrust is told before a restore.
func (g *ghost) givesTrust(w *world, read *metav1.PartialObjectMetadata, wanted map[string]string) {
	before, had := read.Labels[trustKey]
	given, gets := wanted[trustKey]
	if agents.Admitted(read).Set()[trustKey] { // the webhook may have taken it from a record that was behind
		had = false
	}
	if had && (!gets || before != given) {
		w.breaks(errBrokeP8, "%s has %s, and gets %q", read.UID, before, given)
	}
	if !gets || had && before == given {
		return
	}
	g.checkMachine(w, read.UID, given)
	if !g.strict || g.trust.isUnsure || g.by[g.owner].isLoose {
		return
	}
	switch t := &g.trust; {
	case !t.isSaved || given != t.value:
		w.breaks(errBrokeP8, "%s gets %s, which somebody has removed or replaced", read.UID, given)
	case t.of == byHand && w.hasSaid:
		t.of = w.machine
	case t.of != byHand && (!w.hasSaid || t.of != w.machine):
		w.breaks(errBrokeP8, "%s of machine %d gets %s, which machine %d has", read.UID, w.machine, given, t.of)
	}
}

// admitsTrust is told before the webhook's answer changes a Node that is about to be created. The record that it answers from may
// be behind, so only the machine counts.
func (g *ghost) admitsTrust(w *world, requested *metav1.PartialObjectMetadata, given map[string]string) {
	if value, gets := given[trustKey]; gets && value != requested.Labels[trustKey] {
		g.checkMachine(w, "a Node that is created", value)
	}
}

// checkMachine is for a trust label that a Node gets, and that somebody has set on a machine, unless that was [byHand].
func (g *ghost) checkMachine(w *world, uid types.UID, given string) {
	maker, _ := strconv.Atoi(given[1:2])
	if m := machine(maker); m != byHand && (!w.hasSaid || w.machine != m) {
		w.breaks(errBrokeP8, "%s of machine %d gets %s", uid, w.machine, given)
	}
}

// savesTrust is told before a record is written. Nobody knows any more of an incarnation that was gone before it was read which
// machine it was: then its label is not put back.
//
// What a Node got by its name, since the former Node had said nothing, is its machine's from when the
// record says so.
func (g *ghost) savesTrust(w *world, r record.Record) {
	if t := &g.trust; t.of == byHand && t.isSaved && r.Labels[trustKey] == t.value && !r.Identity.IsZero() {
		t.of = g.by[incarnationOf(r.Identity.UID)].machine
		if r.Identity.Identity != t.of.identity() {
			w.breaks(errBrokeP8, "the record says that %s is %q, and it is machine %d", r.Identity.UID, r.Identity.SystemUUID, t.of)
		}
	}
	g.trust.isUnsure = g.trust.isUnsure || slices.ContainsFunc(r.Withheld, func(w record.Withheld) bool { return w.Identity.IsZero() })
}

// checkTrust compares what there is in the end with what there ought to be.
func (g *ghost) checkTrust(w *world) {
	t := g.trust
	if !t.isOn || !g.strict || t.isUnsure || w.broken != nil || !w.record.hasLabels() || g.by[g.owner].isLoose {
		return
	}
	saved, isSaved := w.record.All()[trustKey]
	if w.node == nil || g.recordsUpdates {
		if isSaved != t.isSaved || isSaved && saved != t.value {
			w.breaks(errBrokeP8, "saved is %q, and it ought to be %q", saved, t.value)
		}
	}
	if w.node == nil {
		return
	}
	if _, isThere := w.record.Labels[trustKey]; isThere && w.record.Identity.UID != w.node.UID {
		w.breaks(errBrokeP8, "the record does not say which machine %s is", w.node.UID)
	}
	has, isThere := w.node.Labels[trustKey]
	gets := t.isSaved && (t.of == byHand || w.hasSaid && t.of == w.machine)
	if gets != isThere || gets && has != t.value {
		w.breaks(errBrokeP8, "%s of machine %d has %q, and %q is of machine %d", w.node.UID, w.machine, has, t.value, t.of)
	}
}

// plain returns labels without the trust label.
func plain(own map[string]string) map[string]string {
	if _, isThere := own[trustKey]; !isThere {
		return own
	}
	own = maps.Clone(own)
	delete(own, trustKey)
	return own
}

// split is labels.Split without the trust label.
func split(all map[string]string) (map[string]string, string) {
	own, marker := labels.Split(all)
	delete(own, trustKey)
	return own, marker
}

// hasEffect says whether a decision has an effect that is the transaction's. What waits for the Node does so in the record: nothing
// is lost without the transaction.
func hasEffect(t txn.Transaction, r *record.Record, d preserve.Decision) bool {
	if r == nil || t.Type != txn.Added || d.Action == preserve.Nothing || d.Action == preserve.Open {
		return d.Action != preserve.Nothing
	}
	noted := d.Record
	noted.Identity, noted.Withheld = r.Identity, r.Withheld
	if t.UID != r.Source && t.UID != r.Restored.UID {
		return d.Action == preserve.Restore || d.Again || !noted.Equal(*r) // that nothing waits any more is found by a look, too
	}
	return d.Action == preserve.Save && !noted.Equal(*r) || d.Action == preserve.Restore && len(r.Withheld) == 0
}

// drawMachine draws which machine registers. Of the first one, somebody has written in a manifest that it is trusted.
func (a *userActor) drawMachine(own map[string]string) {
	w := a.world
	w.machine, w.hasSaid = byHand, false
	if !a.choices.happens(a.settings.trust) {
		return
	}
	w.machine = pick(&a.choices, machineA, machineB, machineA)
	w.hasSaid = pick(&a.choices, true, true, false)
	if a.settings.lateMachine {
		w.hasSaid = w.incarnation == 0
		w.machine = pick(&a.choices, machineA, machineA, machineB)
	}
	if w.incarnation == 0 && w.hasSaid && a.choices.next(2) == 1 {
		own[trustKey] = "m" + strconv.Itoa(int(w.machine)) + "-0"
		w.ghost.setsTrust(w, own[trustKey])
	}
}

// actOnMachine is what a user, or a machine, does about trust.
func (a *userActor) actOnMachine(action userAction) {
	w := a.world
	_, has := w.node.Labels[trustKey]
	switch {
	case action == saysMachine && w.machine != byHand && !w.hasSaid:
		w.relabel(nil)
		w.hasSaid = true
		a.tell("says that it is machine %d, %s", w.machine, nodeText(w.node))
	// Before the restore it would be overwritten. Of a machine that has not said who it is, the record cannot know either.
	case action == setsTrust && w.ghost.owns(w) && (w.machine == byHand || w.hasSaid):
		value := "m" + strconv.Itoa(int(w.machine)) + "-" + strconv.Itoa(w.rv)
		w.ghost.setsTrust(w, value)
		w.relabel(func(own map[string]string) { own[trustKey] = value })
		a.tell("trusts %s: %s", nodeText(w.node), value)
	case action == removesTrust && has && w.isNoted():
		// Nothing shows what was set and removed before it was saved.
		w.ghost.trust.isUnsure = w.ghost.trust.isUnsure || w.record.All()[trustKey] != w.node.Labels[trustKey]
		w.ghost.setsTrust(w, "")
		w.relabel(func(own map[string]string) { delete(own, trustKey) })
		a.tell("trusts %s no more", nodeText(w.node))
	}
}
