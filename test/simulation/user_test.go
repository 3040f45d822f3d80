package simulation

import (
	"slices"
	"strconv"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// userAction is one action of a user on the node, or of an actor that behaves like a user.
type userAction int

const (
	edits userAction = iota
	deletes
	heartbeats
	removesLabel
	removesMarker
	agentSets
	agentRemoves
	overrules
	setsTrust
	removesTrust
	reportsMachine
	removesTaint
	removesPending
	closesGate
	takesName
	returnsBackup
	mergesManagers
	setsGuarded
	removesGuarded
	changesPolicy
	commits
	applies
)

// numActions is the number of actions, except those about trust and the startup taint.
const numActions = int(overrules) + 1

// userActor creates, edits and deletes the node.
type userActor struct{ actor }

// next is one turn of the user.
func (a *userActor) next() {
	if a.world.node == nil {
		if a.settings.guarded && a.choices.happens(16) {
			a.changePolicy()
			return
		}
		a.create()
		return
	}
	a.act(a.settings.actions[a.choices.next(len(a.settings.actions))])
}

func (a *userActor) create() {
	w := a.world
	own := map[string]string{"base": "1"}
	if !a.choices.happens(8) {
		own[liveKey] = a.value()
	}
	if a.choices.next(2) == 1 {
		own[w.personKey] = a.value()
	}
	setter := a.drawSetter(own)
	if a.choices.happens(a.settings.template) {
		own[labels.Marker] = a.marker()
	}
	var finalizers []string
	if a.settings.variant == protected && !a.choices.happens(a.settings.bare) {
		finalizers = []string{finalizer}
	}
	a.drawMachine(own)
	a.drawGuarded(own)
	a.register(w.request(own, finalizers, setter))
	a.log("creates %s %v", nodeText(w.node), w.node.Labels)
}

// drawSetter draws who sets the key of the agents in the request that creates the node, and its
// value.
func (a *userActor) drawSetter(own map[string]string) setter {
	w, s := a.world, a.settings
	if last := len(w.events) - 1; last >= 0 && a.choices.happens(s.copies) {
		if value, isThere := w.events[last].node.Labels[w.agentKey]; isThere {
			own[w.agentKey] = value
			w.ghost.copies(w)
			return aCopy
		}
	}
	if !a.choices.happens(s.agents) {
		return theAgents
	}
	own[w.agentKey] = a.value()
	if s.policies {
		w.ghost.policies = append(w.ghost.policies, own[w.agentKey])
		return aPolicy
	}
	return theAgents
}

func (a *userActor) act(action userAction) {
	w := a.world
	switch action {
	case deletes:
		// If no change may be lost without a watcher, a Node must not be deleted before it is protected.
		if a.settings.variant != protected || a.settings.unsafe || isProtected(w.node) {
			a.log("deletes %s %v", nodeText(w.node), w.node.Labels)
			w.deleteNode()
		}
	case heartbeats:
		if !w.acted.IsZero() && a.choices.next(2) == 0 {
			w.actElsewhere()
		} else {
			w.relabel(nil)
		}
		a.log("heartbeat, %s", nodeText(w.node))
	case removesLabel:
		w.relabel(func(own map[string]string) { delete(own, w.personKey) })
		a.log("removes what a person set, %s %v", nodeText(w.node), w.node.Labels)
	case removesMarker:
		// Before the restore is noted, removing the marker requests the restore again.
		if w.isNoted() && w.mayLosePending() {
			w.relabel(func(own map[string]string) { delete(own, labels.Marker) })
			a.log("removes the marker, %s", nodeText(w.node))
		}
	case agentSets, agentRemoves:
		if value := a.value(); action == agentSets {
			w.act(value)
		} else {
			isCopy := w.hasCopy() // its removal looks like a person's
			w.act("")
			w.ghost.withdrawn = w.ghost.withdrawn || !w.ghost.watched || !w.follows(w.node.UID) || isCopy
		}
		a.log("an agent acts, %s %v", nodeText(w.node), w.node.Labels)
	case overrules:
		value, removes := a.value(), a.choices.next(2) == 0
		w.ghost.overruled = true
		w.relabel(func(own map[string]string) {
			if delete(own, w.agentKey); !removes {
				own[w.agentKey] = value
			}
		})
		a.log("overrules the agents, %s %v", nodeText(w.node), w.node.Labels)
	case setsTrust, removesTrust, reportsMachine:
		a.actOnMachine(action)
	case removesTaint, removesPending, closesGate:
		a.actOnGate(action)
	case takesName:
		w.takeName()
	case setsGuarded, removesGuarded, changesPolicy:
		a.actOnGuarded(action)
	case returnsBackup:
		a.returnBackup()
	case mergesManagers:
		a.mergeManagers()
	case commits, applies:
		a.actInGit(action)
	case edits:
		w.relabel(func(own map[string]string) { own[w.personKey] = a.value() })
		a.log("edits %s %v", nodeText(w.node), w.node.Labels)
	}
}

// returnBackup replaces the record that the live Node was restored from with an earlier one. The
// Node must keep its labels, and later changes of them must be saved.
func (a *userActor) returnBackup() {
	w := a.world
	// A late event of the incarnation of the earlier record would make that one the latest again.
	isBehind := slices.ContainsFunc(a.watchers[:a.settings.watchers], func(other *watcherActor) bool { return !other.isDone() }) ||
		slices.ContainsFunc(a.processors[:], func(p *processorActor) bool { return !p.isIdle })
	if len(w.queue) > 0 || isBehind || !w.ghost.owns(w) || !w.isNoted() || w.node.IsDeleting() || !w.node.Edited.Has(labels.Marker) && w.merged != w.incarnation {
		return
	}
	w.ghost.guardsUnsure = true
	restored := number(w.node.Marker)
	for _, earlier := range w.records {
		if earlier.hasLabels() && number(earlier.Revision.String()) < restored && earlier.Source != w.node.UID {
			w.nextRV()
			w.setRecord(newStoredRecord(earlier.Record))
			w.replacedAt = len(w.events)
			a.log("puts an earlier record back: %v version %s source %s", earlier.Labels, earlier.Revision, earlier.Source)
			return
		}
	}
}

// mergeManagers lets many programs write to a Node that was restored. The API server then no longer
// records who has set the marker, and what people have edited.
func (a *userActor) mergeManagers() {
	w := a.world
	if !w.node.Edited.Has(labels.Marker) {
		return
	}
	n := *w.node
	if n.Edited = labels.Marker; a.mutant.copiesMerged {
		n.Edited = ""
	}
	w.merged = w.incarnation
	w.show(&n, false)
	a.log("is written by many, %s", nodeText(w.node))
}

func (a *userActor) value() string {
	if a.choices.happens(a.settings.unique) {
		return "v" + strconv.Itoa(a.world.rv)
	}
	return [...]string{"x", "y", "z"}[a.choices.next(a.settings.values)]
}

// marker returns the marker of a template, which was made from another node, or from this node
// before it was deleted. The latter marker means that the labels have been restored, unless the end
// of the last incarnation was recorded.
func (a *userActor) marker() string {
	if before := a.world.events; a.settings.variant == steady && len(before) > 0 && a.choices.next(2) == 0 {
		if marker := before[len(before)-1].node.Marker; marker != "" {
			return marker
		}
	}
	return "99999"
}

// nodeState prints a Node as its UID and resourceVersion.
type nodeState nodeview.Node

func nodeText(n *nodeview.Node) *nodeState { return (*nodeState)(n) }

func (n *nodeState) String() string {
	if n == nil {
		return "none"
	}
	text := string(n.UID) + "@" + n.Revision.String()
	if !n.DeletedAt.IsZero() {
		text += " (terminating)"
	}
	return text
}
