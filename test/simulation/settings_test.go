package simulation

// variant is which parts of the service are there to be relied on, and so what it promises.
type variant int

const (
	// steady: one watcher never misses anything and never ends.
	steady variant = iota
	// outage: both watchers miss events and are down, also at the same time.
	outage
	// protected: as outage, but Nodes have the finalizer of --protect=finalizer.
	protected
)

func (v variant) String() string { return [...]string{"steady", "outage", "protected"}[v] }

// settings say what there is in one schedule, and how often. Each schedule draws its own: what is rare among all faults
// at once is common where only few exist.
type settings struct {
	variant       variant
	recordUpdates bool

	actions  []userAction
	values   int    // how many label values users choose from; fewer than there are edits, so that labels become again what they were
	template chance // that a node is created with a marker
	unique   chance // that a value is one that no label had before, so that nothing is right by chance
	bare     chance // that a node is created without the finalizer
	lateEdit chance // that a node is edited just when it loses the finalizer

	crash, gap         chance
	lostPut, lostWrite chance // the write is done, and the caller gets an error
	stale              chance // that a cache is not brought up to date
	newPace            chance
	eager              chance // that a watcher stores before it has received all that there is

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
	}
	s.knows = pick(c, true, true, true, false)
	s.behind, s.leaves = pick[chance](c, 0, 32, 56), pick[chance](c, 0, 32, 60)
	if narrow != nil {
		narrow(s)
	}
	// Without updates the first record is made at the end of an incarnation. If all watchers may be down then, nothing is promised.
	s.recordUpdates = s.recordUpdates || s.variant == outage
}

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

// pace draws who gets turns how often: the more often an actor is in the list, the faster it is. Some stand still until
// the next pace.
func (s *settings) pace(c *choices, actors int, turns []int) []int {
	for i := range actors {
		for range pick(c, 1, 0, 3, 9) {
			turns = append(turns, i)
		}
	}
	if len(turns) == 0 {
		turns = append(turns, 0)
	}
	return turns
}

// protectedOnly is for what does not exist elsewhere.
func protectedOnly(s *settings) { s.variant = protected }

// backAndForth is for what matters only where a label becomes again what it was while no watcher runs.
func backAndForth(s *settings) {
	s.variant, s.values, s.unique, s.template = outage, 1, 0, 0
	s.actions = append(s.actions[:0], edits, removesLabel)
	s.crash = max(s.crash, 2)
}

// quickSuccession is for what matters only where an incarnation ends just after its restore, and no watcher sees that.
func quickSuccession(s *settings) {
	s.variant, s.template = outage, 0
	s.actions = append(s.actions[:0], deletes, heartbeats, edits, edits)
	s.crash, s.lostPut, s.stale = 0, 0, 0
	s.lostWrite, s.gap, s.newPace = 24, 40, 3
}
