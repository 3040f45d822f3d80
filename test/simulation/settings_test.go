package simulation

import "slices"

// variant is the part of the service that is available throughout a run, which determines the
// promises.
type variant int

const (
	// steady: at any time there is a watcher that runs, has missed nothing, and has stored what it
	// must store.
	steady variant = iota
	// outage: all watchers miss events and are down, possibly at the same time.
	outage
	// protected: like outage, but Nodes have the finalizer of --protect=finalizer.
	protected
)

func (v variant) String() string { return [...]string{"steady", "outage", "protected"}[v] }

// settings determine the faults of one schedule and their probabilities. Each schedule draws its
// own: a combination that is rare among all faults is common where few faults exist.
type settings struct {
	variant       variant
	recordUpdates bool

	actions     []userAction
	values      int    // the number of label values that users choose from; fewer than there are edits, so that values recur
	template    chance // a node is created with a marker
	agents      chance // a node is registered with a label of its agents
	copies      chance // a person creates a node from a copy of the former one, with the label of its agents
	policies    bool   // an admission policy sets that label, and no manager owns it
	agentKey    string // an annotation or a taint in some schedules
	personKey   string // the key that users set
	trustKey    string // a label that belongs to a machine, restricted or not
	trust       chance // a node is a machine; 0: there are no trust labels
	lateMachine bool   // a machine may report its identity late only at first
	webhook     chance // the webhook answers when a node is created; 0: there is no webhook
	gate        bool   // it adds the startup taint to every node that returns
	uncertain   chance // it cannot read the record
	behindHook  chance // it reads an earlier record
	// markersSuffice: the record need not note an incarnation that was admitted from it, see
	// [admissionsUnnoted].
	markersSuffice bool
	kubelet        chance // a kubelet registers the node, which may not set every label
	comesGated     chance // a node is created with the startup taint
	unique         chance // a value is new, so that no result is right by chance
	guarded        bool   // an admission policy refuses labels
	holdsBack      bool   // it covers the requests that create nodes, and the webhook holds these labels back
	applies        bool   // a tool applies the label of users
	bare           chance // a node is created without the finalizer
	unsafe         bool   // a node may be deleted without the finalizer: only the promises of outages hold then
	removals       chance // the record is removed
	lateEdit       chance // a node is edited just when it loses the finalizer

	crash, gap         chance
	replaces           chance // the datastore is replaced, and revisions start again
	lostPut, lostWrite chance // the write is done, but the caller gets an error
	stale              chance // a cache is not updated
	newPace            chance
	eager              chance // a watcher stores before it has received all events

	restart    bool // it ends with a restart of every watcher
	watchers   int
	relay      bool   // the watcher that misses nothing is not always the first
	slow       chance // a request takes some more time
	deaf       chance // members do not communicate
	silence    chance // the Lease of a live watcher is taken over
	noBookmark chance // a watcher does not receive the API server's current revision

	knows  bool   // watchers skip transactions that are stored according to their caches
	behind chance // such a cache is not updated
	leaves chance // a watcher leaves a transaction to the other one for a while
}

func (s *settings) draw(c *choices, narrow func(*settings)) {
	*s = settings{
		variant:       pick(c, steady, outage, protected),
		recordUpdates: pick(c, true, true, true, false),
		actions:       drawActions(c, s.actions[:0]),
		values:        pick(c, 2, 1, 3),
		template:      pick[chance](c, 0, 8, 40),
		agents:        pick[chance](c, 0, 32, 60),
		unique:        pick[chance](c, 0, 32, 60),
		bare:          pick[chance](c, 0, 32),
		crash:         pick[chance](c, 0, 2, 6),
		gap:           pick[chance](c, 0, 8, 32),
		lostPut:       pick[chance](c, 0, 6, 24),
		lostWrite:     pick[chance](c, 0, 6, 16),
		stale:         pick[chance](c, 0, 32, 56),
		newPace:       pick[chance](c, 0, 2, 6),
		eager:         pick[chance](c, 32, 8, 60),
	}
	if s.variant == protected {
		s.lateEdit = pick[chance](c, 0, 16, 48)
		s.unsafe = s.bare > 0 && pick(c, false, true)
	}
	s.knows = pick(c, true, true, true, false)
	s.behind, s.leaves = pick[chance](c, 0, 32, 56), pick[chance](c, 0, 32, 60)
	s.watchers, s.relay = pick(c, 2, 3, 2, 4, 2), pick(c, false, false, true)
	s.restart = pick(c, true, false, false, false)
	s.slow, s.deaf = pick[chance](c, 0, 16, 0, 48), pick[chance](c, 0, 16, 0, 48)
	s.removals = pick[chance](c, 0, 0, 0, 8)
	s.silence, s.noBookmark = pick[chance](c, 0, 0, 0, 8), pick[chance](c, 63, 48, 0)
	s.agentKey, s.personKey, s.trustKey = agentLabel, "a", restrictedKey
	if s.values == 3 {
		s.trustKey = stateKey
	}
	if narrow != nil {
		narrow(s)
	} else {
		s.trust = pick[chance](c, 0, 0, 0, 56)
		s.agentKey = pick(c, agentLabel, agentLabel, agentAnnotation, agentTaint)
		s.personKey = pick(c, "a", "a", "annotation:a")
		s.drawWebhook(c)
		s.deriveSetters()
		s.deriveRefusals()
	}
	if s.webhook > 0 || s.comesGated > 0 {
		s.actions = append(s.actions, removesTaint, removesPending, closesGate)
	}
	if s.trust > 0 {
		s.actions = append(s.actions, setsTrust, setsTrust, removesTrust, reportsMachine, reportsMachine)
	}
	if s.guarded {
		s.actions = append(s.actions, setsGuarded, setsGuarded, removesGuarded, changesPolicy, changesPolicy)
	}
	s.unsafe = s.unsafe && s.variant == protected
	// Without updates the first record is created at the end of an incarnation. If all watchers may be
	// down at that time, there is no promise.
	s.recordUpdates = s.recordUpdates || !s.isStrict()
}

// deriveSetters decides who sets the key of the agents. It draws nothing, so that the seeds of other
// schedules keep their meaning.
func (s *settings) deriveSetters() {
	switch {
	case s.eager != 60 || s.agentKey == agentTaint:
	case s.agents == 60:
		s.copies = 32
	case s.agents == 32:
		s.policies = true
	}
}

// deriveRefusals decides whether an admission policy refuses labels. It draws nothing, as above.
func (s *settings) deriveRefusals() {
	s.guarded = s.noBookmark == 48 && s.newPace == 6
	s.holdsBack = s.values == 1
}

// isStrict reports whether no change may be lost.
func (s *settings) isStrict() bool { return s.variant != outage && !s.unsafe }

// drawActions draws a weight for every kind of the user's actions, and returns each kind that
// often.
func drawActions(c *choices, actions []userAction) []userAction {
	actions = append(actions, deletes, edits)
	for action := range numActions {
		for range pick(c, 1, 0, 4) {
			actions = append(actions, userAction(action))
		}
	}
	return actions
}

// pace draws the relative speed of the actors: the more often an actor is in the list, the faster
// it is. Some stall until the next pace.
func (s *settings) pace(c *choices, turns []int) []int {
	for i := range remover + 1 {
		if s.watchers < i && i <= maxWatchers || i == remover && s.removals == 0 {
			continue
		}
		for range pick(c, 1, 0, 3, 9) {
			turns = append(turns, i)
		}
	}
	if len(turns) == 0 {
		turns = append(turns, 0)
	}
	return turns
}

// preserved narrows schedules to preserved taints and annotations.
func preserved(s *settings) {
	s.agentKey, s.personKey = agentTaint, "annotation:a"
	s.agents = max(s.agents, 32)
}

// copiedNodes narrows schedules to nodes that people create from copies of the former ones.
func copiedNodes(s *settings) {
	s.agents, s.copies, s.removals, s.template = 60, 32, 0, 0
	if s.unique == 32 {
		s.agentKey = agentAnnotation
	}
}

// policiesAtCreation narrows schedules to nodes that an admission policy labels.
func policiesAtCreation(s *settings) { s.agents, s.policies, s.removals, s.template = 40, true, 0, 0 }

// machines narrows schedules to nodes that are machines and trusted by users.
func machines(s *settings) {
	s.trust, s.agents, s.template, s.removals = 56, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, edits, heartbeats, heartbeats, heartbeats)
}

// states narrows schedules to machines that have a label of their own that is not restricted.
func states(s *settings) {
	machines(s)
	s.trustKey = stateKey
}

// undisturbed narrows schedules to runs without failures, in which processors are fast enough to
// see each state.
func undisturbed(s *settings) {
	s.variant, s.recordUpdates = steady, true
	s.crash, s.gap, s.stale, s.slow, s.deaf, s.silence, s.behind, s.leaves, s.lostPut = 0, 0, 0, 0, 0, 0, 0, 0, 0
}

// lateMachines narrows schedules to machines that report their identity late, and processors that
// are fast enough to see each state.
func lateMachines(s *settings) {
	machines(s)
	undisturbed(s)
	s.knows, s.watchers, s.relay, s.newPace, s.lateMachine = true, 2, false, 6, true
}

// protectedOnly narrows schedules to the variant protected.
func protectedOnly(s *settings) { s.variant, s.unsafe = protected, false }

// unnotedEnds narrows schedules to nodes that end before their restore is noted, after a user has
// removed the key of the agents.
func unnotedEnds(s *settings) {
	protectedOnly(s)
	s.crash, s.newPace, s.lostPut, s.lateEdit, s.removals = 16, 4, 0, 0, 0
	s.agents = max(s.agents, 32)
	s.actions = append(s.actions[:0], deletes, edits, overrules, overrules)
}

// removedThenUnprotected narrows schedules to an unprotected end after the removal of a record.
func removedThenUnprotected(s *settings) {
	unprotectedEnds(s)
	s.removals, s.stale = 8, 56
}

// removals narrows schedules to removals of records.
func removals(s *settings) { s.removals = 32 }

// shortLives narrows schedules to replicas that live for a second, and finish almost nothing that
// they begin.
func shortLives(s *settings) {
	s.crash, s.newPace, s.watchers = 24, 2, 3
	s.lostPut, s.lostWrite = 6, 6
}

// fewIncarnations narrows schedules to watchers that record different states of one short life.
func fewIncarnations(s *settings) {
	s.agents = 0
	s.removals, s.unsafe, s.silence, s.deaf, s.slow, s.knows = 0, false, 0, 0, 0, false
	s.actions = append(s.actions[:0], deletes, edits, edits)
	s.crash, s.watchers = max(s.crash, 2), 2
}

// tombstones narrows schedules to a watcher that was down and assigns an end the revision of
// another event.
func tombstones(s *settings) {
	s.agents = 0
	s.removals, s.unsafe, s.silence, s.gap, s.stale = 0, false, 0, 32, 32
	s.actions = append(s.actions[:0], deletes, edits, heartbeats)
}

// admissions narrows schedules to answers of the webhook, with last changes of a node that are
// stored late.
func admissions(s *settings) {
	s.agents = 0
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook = 60, 4, 16, 8, 24
	s.gate, s.lateEdit, s.removals = s.values == 2, 0, 0
	if s.eager == 8 {
		s.personKey, s.kubelet = heldKey, 40
	}
	s.actions = append(s.actions[:0], deletes, deletes, edits, removesLabel, heartbeats)
	s.newPace = max(s.newPace, 2)
}

// admissionsUnnoted narrows schedules to a design in which the marker of an admitted Node is
// equivalent to a note in the record.
func admissionsUnnoted(s *settings) {
	admissions(s)
	s.markersSuffice = true
}

// admissionsAfterRemovals narrows schedules to answers of the webhook and removals of records.
func admissionsAfterRemovals(s *settings) {
	admissions(s)
	s.removals = 24
}

// admissionsOfUnprotected narrows schedules to answers of the webhook before the end of an
// unprotected Node is saved, and to the release of the next Node.
func admissionsOfUnprotected(s *settings) {
	unprotectedEnds(s)
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook, s.gate, s.lateEdit = 60, 0, 0, 0, 0, false, 0
	s.removals, s.newPace = 0, max(s.newPace, 2)
}

// trustedAdmissions narrows schedules to answers of the webhook about machines that users trust.
func trustedAdmissions(s *settings) {
	behind := s.stale // drawn from the same values
	machines(s)
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook = 60, 4, 16, 8, behind
	s.gate, s.lateEdit = s.values == 2, 0
	s.actions = append(s.actions[:0], deletes, deletes, edits, heartbeats)
	s.newPace = max(s.newPace, 2)
}

// trustedBehind narrows schedules to answers of the webhook with a restricted label that has been
// replaced since, where the Node does not get the replacement.
func trustedBehind(s *settings) {
	trustedAdmissions(s)
	undisturbed(s)
	s.behindHook, s.kubelet, s.comesGated, s.uncertain = 56, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, deletes, setsTrust, removesTrust)
}

// outageOnly narrows schedules to scripts in which all watchers are down.
func outageOnly(s *settings) { s.variant = outage }

// markersRemoved narrows schedules to nodes that lose their marker just after their restore.
func markersRemoved(s *settings) {
	s.agents = 0
	s.variant, s.unique, s.template, s.recordUpdates = steady, 60, 0, true
	s.actions = append(s.actions[:0], deletes, removesMarker, removesMarker, edits)
	s.crash, s.gap, s.lostPut, s.lostWrite, s.newPace, s.stale = 0, 0, 0, 0, 6, 0
}

// silences narrows schedules to live watchers whose Leases are taken over, with short lives.
func silences(s *settings) {
	s.agents = 0
	s.variant, s.relay, s.watchers, s.recordUpdates = steady, true, 3, true
	s.crash, s.slow, s.template, s.deaf, s.gap, s.silence, s.newPace = 3, 0, 0, 0, 0, 32, 6
	s.unique, s.lostPut, s.lostWrite, s.stale, s.leaves = 60, 0, 0, 0, 32
	s.actions = append(s.actions[:0], deletes, edits, edits)
}

// loneSilences narrows schedules to a single watcher that stands still now and then.
func loneSilences(s *settings) {
	silences(s)
	s.relay, s.watchers, s.crash, s.silence = false, 1, 0, 8
}

// unprotectedEnds narrows schedules to the end of an unprotected Node before that of a protected
// one.
func unprotectedEnds(s *settings) {
	s.agents = 0
	s.variant, s.bare, s.unsafe, s.recordUpdates = protected, 32, true, true
	s.actions = append(s.actions[:0], deletes, deletes, edits)
	s.unique, s.stale, s.template = 60, 32, 0
}

// backAndForth narrows schedules to a label that returns to its former value while no watcher runs.
func backAndForth(s *settings) {
	s.agents = 0
	s.variant, s.values, s.unique, s.template = outage, 1, 0, 0
	s.actions = append(s.actions[:0], edits, removesLabel)
	s.crash, s.removals, s.silence, s.deaf, s.watchers = max(s.crash, 2), 0, 0, 0, 2
}

// quickSuccession narrows schedules to an incarnation that ends just after its restore, unseen by
// watchers.
func quickSuccession(s *settings) {
	s.variant, s.template, s.agents = outage, 0, 0
	s.actions = append(s.actions[:0], deletes, heartbeats, edits, edits)
	s.crash, s.lostPut, s.stale = 0, 0, 0
	s.lostWrite, s.gap, s.newPace = 24, 40, 3
}

// takingTurns narrows schedules to watchers with short lives.
func takingTurns(s *settings) {
	s.agents = 0
	s.variant, s.relay, s.watchers = steady, true, 3
	s.crash, s.slow, s.template, s.deaf, s.gap, s.silence = 3, 60, 0, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, edits, edits)
}

// takenNames narrows schedules to malformed objects that have the names of transactions, with
// watchers that take turns.
func takenNames(s *settings) {
	takingTurns(s)
	s.slow, s.newPace = 16, max(s.newPace, 2)
	s.actions = append(s.actions, takesName, takesName)
}

// lateEdits narrows schedules to Nodes that are edited during their release, unseen by watchers.
func lateEdits(s *settings) {
	s.agents = 0
	s.variant, s.watchers, s.lateEdit, s.unsafe = protected, 1, 56, false
	s.gap, s.stale, s.crash, s.unique = 40, 56, 0, 60
	s.actions = append(s.actions[:0], deletes, deletes, heartbeats)
}

// lateEnds narrows schedules to an event of an incarnation that is recorded while the next
// incarnation gets its labels.
func lateEnds(s *settings) {
	s.agents = 0
	s.variant, s.template, s.unique, s.values = outage, 0, 0, 1
	s.actions = append(s.actions[:0], deletes, heartbeats, edits, removesLabel)
	s.crash, s.lostPut, s.stale, s.lostWrite = 2, 0, 0, 0
	s.gap, s.newPace, s.slow = 32, 6, 48
	s.knows, s.leaves = false, 32
}

// standingStill narrows schedules to processors that stall for long.
func standingStill(s *settings) {
	s.agents = 0
	s.variant, s.recordUpdates, s.watchers, s.values, s.knows = outage, true, 2, 2, false
	s.template, s.gap, s.lostWrite = 40, 32, 6
	s.unique, s.bare, s.crash, s.lostPut, s.stale, s.newPace = 0, 0, 0, 0, 0, 2
	s.slow, s.deaf, s.silence, s.leaves, s.noBookmark = 0, 0, 0, 0, 0
	s.actions = slices.DeleteFunc(s.actions, func(a userAction) bool { return a > removesMarker })
}

// overtaken narrows schedules to the end of an incarnation that is recorded after the restore of
// its labels, by a watcher that others have not waited for.
func overtaken(s *settings) {
	s.agents = 0
	s.variant, s.watchers, s.values, s.unique, s.template, s.lateEdit, s.bare = protected, 2, 1, 0, 0, 0, 0
	s.unsafe = false
	s.actions = append(s.actions[:0], deletes, heartbeats)
	s.slow, s.deaf, s.silence, s.crash, s.gap, s.newPace, s.leaves, s.eager = 0, 0, 24, 2, 0, 6, 48, 60
	s.lostWrite, s.lostPut, s.stale = 0, 0, 0
}

// backups narrows schedules to records of live Nodes that are replaced by earlier ones.
func backups(s *settings) {
	s.agents, s.removals, s.restart, s.template = 0, 0, false, 40
	s.gap, s.crash, s.newPace, s.watchers = 0, 0, max(s.newPace, 2), 2
	s.actions = append(s.actions[:0], deletes, edits, edits, heartbeats, mergesManagers, returnsBackup, returnsBackup)
}

// editedEarly narrows schedules to Nodes that are edited before their restore.
func editedEarly(s *settings) {
	s.removals = 0
	s.actions = append(s.actions[:0], deletes, edits, edits, removesLabel)
	s.unique, s.newPace = max(s.unique, 32), max(s.newPace, 2)
}
