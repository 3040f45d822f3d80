package simulation

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/record"
)

// The field managers of a tool that applies the label of users as it is in Git, and of people who
// change it.
const (
	toolManager   = "argocd-controller"
	personManager = "kubectl-label"
)

// inGit is a value that only the tool sets.
const inGit = "g"

// maxGiveBack is the number of attempts of [nodes.Nodes.GiveBack].
const maxGiveBack = 3

var errBrokeOwners = errors.New("owners: after a restore a label belongs to those who had set it")

// ownership has the field managers that own the label of users on the live Node. The API server makes
// whoever changes a label its only owner.
type ownership struct{ tool, person, keeper bool }

// isKnown reports whether an owner other than nodekeeper is known.
func (o ownership) isKnown() bool { return o.tool || o.person }

// with returns the owners in either, except nodekeeper.
func (o ownership) with(other ownership) ownership {
	return ownership{tool: o.tool || other.tool, person: o.person || other.person}
}

// isIn reports whether all owners are in the other ones, except nodekeeper.
func (o ownership) isIn(other ownership) bool {
	return (!o.tool || other.tool) && (!o.person || other.person)
}

// stated returns the ownership of a key as transactions and records have it.
func (o ownership) stated(key string) fieldmanagers.Owners {
	var list []fieldmanagers.Owner
	if o.tool {
		list = append(list, fieldmanagers.Owner{Manager: toolManager, Operation: metav1.ManagedFieldsOperationApply, Keys: labels.Keys(key)})
	}
	if o.person {
		list = append(list, fieldmanagers.Owner{Manager: personManager, Operation: metav1.ManagedFieldsOperationUpdate, Keys: labels.Keys(key)})
	}
	if o.keeper {
		list = append(list, fieldmanagers.Owner{Manager: fieldmanagers.Processor, Operation: metav1.ManagedFieldsOperationUpdate, Keys: labels.Keys(key)})
	}
	return fieldmanagers.Of(list)
}

// ownershipIn returns the ownership of a key in a record.
func ownershipIn(stated fieldmanagers.Owners, key string) (o ownership) {
	list, err := stated.List()
	if err != nil {
		panic(err)
	}
	for _, owner := range list {
		if owner.Keys.Has(key) {
			o.tool, o.person = o.tool || owner.Manager == toolManager, o.person || owner.Manager == personManager
		}
	}
	return o
}

// applied has the owners of the label of users on a Node.
type applied struct {
	owned       ownership
	isInherited bool // nodekeeper has set its value
}

// applier is a tool that applies one label of the Node, and the owners of that label.
type applier struct {
	isOn   bool
	wanted string    // the value in Git; "" if the label is not there
	writer ownership // who makes the next change; the zero value means a person

	applied
	// The owners that the label must and may have, on the Node that has its labels.
	least, most ownership
	isUnsure    bool // nodekeeper may keep the label
}

// changed must be called after the label has changed.
func (p *applier) changed(w *world, isThere bool) {
	by := p.writer
	if by == (ownership{}) {
		by.person = true
	}
	p.owned, p.isInherited = ownership{}, by.keeper
	if isThere {
		p.owned = by
	}
	if !by.keeper && w.ghost.owns(w) {
		p.least, p.most = p.owned, p.owned
	}
}

// inherits must be called when an incarnation owns its labels from now on. A label that nodekeeper has
// not changed belongs to its own setter.
func (p *applier) inherits(w *world, incarnation int) {
	for _, e := range slices.Backward(w.events) {
		if e.incarnation == incarnation {
			if !e.isInherited {
				p.least, p.most = e.owned, e.owned
			}
			return
		}
	}
}

// check checks the owners of the label in the final state.
func (p *applier) check(w *world) {
	if !p.isOn || p.isUnsure || w.node == nil || !w.ghost.strict || w.broken != nil {
		return
	}
	if _, isThere := w.node.Labels[w.personKey]; !isThere {
		return
	}
	if isLeft := p.owned.keeper && p.least.isKnown(); isLeft || !p.least.isIn(p.owned) || !p.owned.isIn(p.most) {
		w.breaks(errBrokeOwners, "%s belongs to %+v, and ought to belong to %+v", w.personKey, p.owned, p.least)
	}
}

// actInGit changes what the tool applies, or lets it apply that.
func (a *userActor) actInGit(action userAction) {
	w := a.world
	p := &w.applier
	if action == commits {
		p.wanted = pick(&a.choices, "", inGit, a.value())
		a.log("commits %q", p.wanted)
		return
	}
	value, isThere := w.node.Labels[w.personKey]
	isOwners := w.ghost.owns(w)
	if !isOwners && p.isInherited {
		p.isUnsure = true // the record does not note yet that the Node has this label
	}
	switch {
	case p.wanted != "" && (!isThere || value != p.wanted):
		p.write(w, ownership{tool: true}, func(own map[string]string) { own[w.personKey] = p.wanted })
	case p.wanted != "" && !p.owned.tool:
		p.owned.tool = true
		if isOwners {
			p.least.tool, p.most.tool = true, true
		}
		w.relabel(nil)
	case p.wanted == "" && p.owned.tool && (p.owned.person || p.owned.keeper):
		p.owned.tool = false
		if isOwners {
			p.least.tool, p.most.tool = false, p.owned.keeper // it may get the label back once more
		}
		w.relabel(nil)
	case p.wanted == "" && p.owned.tool:
		p.write(w, ownership{tool: true}, func(own map[string]string) { delete(own, w.personKey) })
	}
	a.log("applies %q, %s %v, %+v", p.wanted, nodeText(w.node), w.node.Labels, p.owned)
}

// write changes the labels of the Node by someone.
func (p *applier) write(w *world, by ownership, change func(own map[string]string)) {
	p.writer = by
	w.relabel(change)
	p.writer = ownership{}
}

// note notes the owners of a Node that is about to be shown.
func (p *applier) note(w *world, n *nodeview.Node) {
	stated := fieldmanagers.Owners("")
	if _, isThere := n.Labels[w.personKey]; isThere {
		stated = p.owned.stated(w.personKey)
	}
	n.Owners = stated
}

// answered notes that the label is nodekeeper's after an answer of the webhook that changes it.
func (c *creation) answered(before map[string]string, key string) {
	if former, wasThere := before[key]; !wasThere || former != c.node.Labels[key] {
		c.applied = applied{owned: ownership{keeper: true}, isInherited: true}
	}
}

// appliedAt returns the owners of the label of a Node that was read.
func (w *world) appliedAt(read *nodeview.Node) applied {
	rv := number(read.Revision.String())
	return w.events[slices.IndexFunc(w.events, func(e event) bool { return e.rv == rv })].applied
}

// GiveBack implements [apply.Nodes]. Like [nodes.Nodes.GiveBack], it is conditional on the owners.
func (a *processorActor) GiveBack(_ context.Context, read *nodeview.Node, to fieldmanagers.Owners) error {
	w := a.world
	p := &w.applier
	given := ownershipIn(to, w.personKey)
	switch {
	case !p.isOn, a.mutant.givesNothingBack, a.mutant.givesBackOnce && !a.broken.relabelled:
		return nil
	case a.mutant.givesBackToTool:
		given = ownership{tool: true}
	}
	current := read
	for range maxGiveBack {
		known := w.appliedAt(current).owned
		if !known.keeper || !given.isKnown() {
			return nil
		}
		a.pause()
		switch {
		case w.node == nil || w.node.UID != read.UID:
			return nil
		case p.owned == known:
			p.owned = known.with(given)
			w.relabel(nil)
			w.node.Edited = w.node.Edited.Union(labels.Keys(w.personKey)) // as if its owners had written again
			a.log("  gives %s back: %+v", w.personKey, p.owned)
			if a.isLost() {
				return errLost
			}
			return nil
		}
		a.pause()
		if w.node == nil || w.node.UID != read.UID {
			return nil
		}
		current = w.node
		a.log("  reads the Node again")
	}
	p.isUnsure = true
	return nodes.ErrStale
}

// appliers narrows schedules to a tool that applies the label of users.
func appliers(s *settings) {
	s.applies, s.unsafe, s.removals, s.agents = true, false, 0, 0
	s.actions = append(s.actions[:0], deletes, edits, removesLabel, commits, applies, applies)
	s.newPace = max(s.newPace, 2)
}

// appliersAndWebhook narrows schedules to such a tool and answers of the webhook.
func appliersAndWebhook(s *settings) {
	appliers(s)
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook = 60, 4, 0, 8, 24
	s.gate, s.lateEdit = s.values == 2, 0
}

// applierMutants break the rules about the owners of labels. They are part of [mutants].
var applierMutants = map[string]mutant{
	"owners: nothing is given back":               {narrow: appliers, givesNothingBack: true},
	"owners: nothing is given back after a crash": {narrow: appliers, givesBackOnce: true},
	"owners: the tool gets the labels of people":  {narrow: appliers, givesBackToTool: true},
	"owners: those of labels that are still to be given back are forgotten": {narrow: appliers, write: func(_, next record.Record) record.Record {
		if next.Restored.UID != "" {
			next.Owners = ""
		}
		return next
	}},
}
