package simulation

import "slices"

// variant is which parts of the service are there to be relied on, and so what it promises.
type variant int

const (
	// steady: at any time there is a watcher that has not missed anything, nor ended, since it
	// stored what it is to store.
	steady variant = iota
	// outage: all watchers miss events and are down, also at the same time.
	outage
	// protected: as outage, but Nodes have the finalizer of --protect=finalizer.
	protected
)

func (v variant) String() string { return [...]string{"steady", "outage", "protected"}[v] }

// settings say what there is in one schedule, and how often. Each schedule draws its own: what is
// rare among all faults at once is common where only few exist.
type settings struct {
	variant       variant
	recordUpdates bool

	actions     []userAction
	values      int    // how many label values users choose from; fewer than there are edits, so that labels become again what they were
	template    chance // that a node is created with a marker
	agents      chance // that a node is registered with a label of its agents
	agentKey    string // which is no label at all, but an annotation or a taint, in some schedules
	personKey   string // what people set
	trust       chance // that a node is a machine, where there are trust labels; 0: there are none
	lateMachine bool   // whether a machine never says at once who it is, but at first
	webhook     chance // that the webhook answers when a node is created; 0: there is none
	gate        bool   // whether it gives every node that returns the startup taint
	uncertain   chance // that it does not know what is saved
	behindHook  chance // that it answers by an earlier record
	// markersSuffice: nobody demands that a record notes an incarnation which was admitted by it, see [admissionsUnnoted].
	markersSuffice bool
	kubelet        chance // that a node is registered by a kubelet, which may not set every label
	comesGated     chance // that a node comes with the startup taint
	unique         chance // that a value is one that no label had before, so that nothing is right by chance
	bare           chance // that a node is created without the finalizer
	unsafe         bool   // whether a node is also deleted without the finalizer: nothing is promised then but what outages leave
	removals       chance // that somebody removes the record
	lateEdit       chance // that a node is edited just when it loses the finalizer

	crash, gap         chance
	lostPut, lostWrite chance // the write is done, and the caller gets an error
	stale              chance // that a cache is not brought up to date
	newPace            chance
	eager              chance // that a watcher stores before it has received all that there is

	restart    bool // whether it ends with a restart of every watcher
	watchers   int
	relay      bool   // whether it is not always the first watcher that misses nothing
	slow       chance // that a request takes some more time
	deaf       chance // that nothing passes between the members
	silence    chance // that the Lease of a watcher is taken over that lives
	noBookmark chance // that a watcher is not told how far the API server is

	knows  bool   // whether watchers leave out what their caches show to be stored
	behind chance // that such a cache is not brought up to date
	leaves chance // that a watcher leaves what it could store to the other one for a while
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
	s.agentKey, s.personKey = agentLabel, "a"
	if narrow != nil {
		narrow(s)
	} else {
		s.trust = pick[chance](c, 0, 0, 0, 56)
		s.agentKey = pick(c, agentLabel, agentLabel, agentAnnotation, agentTaint)
		s.personKey = pick(c, "a", "a", "annotation:a")
		s.drawWebhook(c)
	}
	if s.webhook > 0 || s.comesGated > 0 {
		s.actions = append(s.actions, removesTaint, removesPending, closesGate)
	}
	if s.trust > 0 {
		s.actions = append(s.actions, setsTrust, setsTrust, removesTrust, saysMachine, saysMachine)
	}
	s.unsafe = s.unsafe && s.variant == protected
	// Without updates the first record is made at the end of an incarnation. If all watchers may be
	// down then, nothing is promised.
	s.recordUpdates = s.recordUpdates || !s.isStrict()
}

// isStrict says whether nothing is ever to be lost.
func (s *settings) isStrict() bool { return s.variant != outage && !s.unsafe }

// drawActions returns every kind of the user's actions as often as it is to be met.
func drawActions(c *choices, actions []userAction) []userAction {
	actions = append(actions, deletes, edits)
	for action := range numActions {
		for range pick(c, 1, 0, 4) {
			actions = append(actions, userAction(action))
		}
	}
	return actions
}

// pace draws who gets turns how often: the more often an actor is in the list, the faster it is.
// Some stand still until the next pace.
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

// preserved is for what matters only where taints and annotations are kept.
func preserved(s *settings) {
	s.agentKey, s.personKey = agentTaint, "annotation:a"
	s.agents = max(s.agents, 32)
}

// machines is for what matters only where nodes are machines, and people trust them.
func machines(s *settings) {
	s.trust, s.agents, s.template, s.removals = 56, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, edits, heartbeats, heartbeats, heartbeats)
}

// undisturbed is for what matters only where nobody fails, and processors are fast enough to see what
// was there before.
func undisturbed(s *settings) {
	s.variant, s.recordUpdates = steady, true
	s.crash, s.gap, s.stale, s.slow, s.deaf, s.silence, s.behind, s.leaves, s.lostPut = 0, 0, 0, 0, 0, 0, 0, 0, 0
}

// lateMachines is for what matters only where a machine says late who it is, and processors are fast enough to see what was
// there before.
func lateMachines(s *settings) {
	machines(s)
	undisturbed(s)
	s.knows, s.watchers, s.relay, s.newPace, s.lateMachine = true, 2, false, 6, true
}

// protectedOnly is for what does not exist elsewhere.
func protectedOnly(s *settings) { s.variant, s.unsafe = protected, false }

// unnotedEnds is for what matters only where a node ends while its restore is not noted, and a
// person has removed what its agents said.
func unnotedEnds(s *settings) {
	protectedOnly(s)
	s.crash, s.newPace, s.lostPut, s.lateEdit, s.removals = 16, 4, 0, 0, 0
	s.agents = max(s.agents, 32)
	s.actions = append(s.actions[:0], deletes, edits, overrules, overrules)
}

// removedThenUnprotected is for what matters only where an unprotected end follows the removal of a record.
func removedThenUnprotected(s *settings) {
	unprotectedEnds(s)
	s.removals, s.stale = 8, 56
}

// removals is for what matters only where records are removed.
func removals(s *settings) { s.removals = 32 }

// shortLives is for replicas that live for a second: next to nothing that they begin is finished.
func shortLives(s *settings) {
	s.crash, s.newPace, s.watchers = 24, 2, 3
	s.lostPut, s.lostWrite = 6, 6
}

// fewIncarnations is for what matters only where watchers record different things of one short life.
func fewIncarnations(s *settings) {
	s.agents = 0
	s.removals, s.unsafe, s.silence, s.deaf, s.slow, s.knows = 0, false, 0, 0, 0, false
	s.actions = append(s.actions[:0], deletes, edits, edits)
	s.crash, s.watchers = max(s.crash, 2), 2
}

// tombstones is for what matters only where a watcher that was away takes an end to be at a revision that another event has.
func tombstones(s *settings) {
	s.agents = 0
	s.removals, s.unsafe, s.silence, s.gap, s.stale = 0, false, 0, 32, 32
	s.actions = append(s.actions[:0], deletes, edits, heartbeats)
}

// admissions is for what matters only where the webhook answers, and the last changes of a node are stored late.
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

// admissionsUnnoted is for a design in which the marker of a Node that was admitted is as good as a note in the record.
func admissionsUnnoted(s *settings) {
	admissions(s)
	s.markersSuffice = true
}

// admissionsAfterRemovals is for what matters only where the webhook answers, and records are removed.
func admissionsAfterRemovals(s *settings) {
	admissions(s)
	s.removals = 24
}

// admissionsOfUnprotected is for what matters only where the webhook answers while the end of a
// Node without the finalizer is not saved yet, and the next one is let go.
func admissionsOfUnprotected(s *settings) {
	unprotectedEnds(s)
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook, s.gate, s.lateEdit = 60, 0, 0, 0, 0, false, 0
	s.removals, s.newPace = 0, max(s.newPace, 2)
}

// trustedAdmissions is for what matters only where the webhook answers about machines, and people trust them.
func trustedAdmissions(s *settings) {
	behind := s.stale // drawn from the same values
	machines(s)
	s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook = 60, 4, 16, 8, behind
	s.gate, s.lateEdit = s.values == 2, 0
	s.actions = append(s.actions[:0], deletes, deletes, edits, heartbeats)
	s.newPace = max(s.newPace, 2)
}

// trustedBehind is for what matters only where the webhook gives a Node a restricted label that
// somebody has replaced since, and the Node does not get the one that replaced it.
func trustedBehind(s *settings) {
	trustedAdmissions(s)
	undisturbed(s)
	s.behindHook, s.kubelet, s.comesGated, s.uncertain = 56, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, deletes, setsTrust, removesTrust)
}

// outageOnly is for what is shown by a script in which all watchers are down.
func outageOnly(s *settings) { s.variant = outage }

// markersRemoved is for what matters only where a node loses its marker just after its restore.
func markersRemoved(s *settings) {
	s.agents = 0
	s.variant, s.unique, s.template, s.recordUpdates = steady, 60, 0, true
	s.actions = append(s.actions[:0], deletes, removesMarker, removesMarker, edits)
	s.crash, s.gap, s.lostPut, s.lostWrite, s.newPace, s.stale = 0, 0, 0, 0, 6, 0
}

// silences is for what matters only where the Leases of watchers that live are taken over, and no watcher lives for long.
func silences(s *settings) {
	s.agents = 0
	s.variant, s.relay, s.watchers, s.recordUpdates = steady, true, 3, true
	s.crash, s.slow, s.template, s.deaf, s.gap, s.silence, s.newPace = 3, 0, 0, 0, 0, 32, 6
	s.unique, s.lostPut, s.lostWrite, s.stale, s.leaves = 60, 0, 0, 0, 32
	s.actions = append(s.actions[:0], deletes, edits, edits)
}

// unprotectedEnds is for what matters only where the end of a Node without the finalizer comes before that of one which has it.
func unprotectedEnds(s *settings) {
	s.agents = 0
	s.variant, s.bare, s.unsafe, s.recordUpdates = protected, 32, true, true
	s.actions = append(s.actions[:0], deletes, deletes, edits)
	s.unique, s.stale, s.template = 60, 32, 0
}

// backAndForth is for what matters only where a label becomes again what it was while no watcher
// runs.
func backAndForth(s *settings) {
	s.agents = 0
	s.variant, s.values, s.unique, s.template = outage, 1, 0, 0
	s.actions = append(s.actions[:0], edits, removesLabel)
	s.crash, s.removals, s.silence, s.deaf, s.watchers = max(s.crash, 2), 0, 0, 0, 2
}

// quickSuccession is for what matters only where an incarnation ends just after its restore, and no
// watcher sees that.
func quickSuccession(s *settings) {
	s.variant, s.template, s.agents = outage, 0, 0
	s.actions = append(s.actions[:0], deletes, heartbeats, edits, edits)
	s.crash, s.lostPut, s.stale = 0, 0, 0
	s.lostWrite, s.gap, s.newPace = 24, 40, 3
}

// takingTurns is for what matters only where no watcher lives for long.
func takingTurns(s *settings) {
	s.agents = 0
	s.variant, s.relay, s.watchers = steady, true, 3
	s.crash, s.slow, s.template, s.deaf, s.gap, s.silence = 3, 60, 0, 0, 0, 0
	s.actions = append(s.actions[:0], deletes, edits, edits)
}

// lateEdits is for what matters only where a Node is edited when it is let go, and no watcher sees
// that.
func lateEdits(s *settings) {
	s.agents = 0
	s.variant, s.watchers, s.lateEdit, s.unsafe = protected, 1, 56, false
	s.gap, s.stale, s.crash, s.unique = 40, 56, 0, 60
	s.actions = append(s.actions[:0], deletes, deletes, heartbeats)
}

// lateEnds is for what matters only where an event of an incarnation is recorded while the next one gets its labels.
func lateEnds(s *settings) {
	s.agents = 0
	s.variant, s.template, s.unique, s.values = outage, 0, 0, 1
	s.actions = append(s.actions[:0], deletes, heartbeats, edits, removesLabel)
	s.crash, s.lostPut, s.stale, s.lostWrite = 2, 0, 0, 0
	s.gap, s.newPace, s.slow = 32, 6, 48
	s.knows, s.leaves = false, 32
}

// standingStill is for what matters only where a processor stands still for long.
func standingStill(s *settings) {
	s.agents = 0
	s.variant, s.recordUpdates, s.watchers, s.values, s.knows = outage, true, 2, 2, false
	s.template, s.gap, s.lostWrite = 40, 32, 6
	s.unique, s.bare, s.crash, s.lostPut, s.stale, s.newPace = 0, 0, 0, 0, 0, 2
	s.slow, s.deaf, s.silence, s.leaves, s.noBookmark = 0, 0, 0, 0, 0
	s.actions = slices.DeleteFunc(s.actions, func(a userAction) bool { return a > removesMarker })
}

// overtaken is for what matters only where the end of an incarnation is recorded after its labels
// were put back, by a watcher for which others have not waited.
func overtaken(s *settings) {
	s.agents = 0
	s.variant, s.watchers, s.values, s.unique, s.template, s.lateEdit, s.bare = protected, 2, 1, 0, 0, 0, 0
	s.unsafe = false
	s.actions = append(s.actions[:0], deletes, heartbeats)
	s.slow, s.deaf, s.silence, s.crash, s.gap, s.newPace, s.leaves, s.eager = 0, 0, 24, 2, 0, 6, 48, 60
	s.lostWrite, s.lostPut, s.stale = 0, 0, 0
}
