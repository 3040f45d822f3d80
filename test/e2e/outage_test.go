package e2e_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/txn"
)

// TestOutageOfEveryWatcher covers the outage against which there is no protection: all watchers are
// killed while nodes are edited, deleted and recreated. The labels stored before are restored. An
// edit during the outage is lost if the node is deleted before a watcher is back.
func TestOutageOfEveryWatcher(t *testing.T) {
	t.Parallel()
	for name, withProcessors := range map[string]bool{"processors run": false, "no processor runs either": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t)
			for round := range 3 {
				o.know(round, withProcessors)
				o.change(round)
				o.fleet()
				o.check(round)
				for _, name := range o.names { // and the next cycle, which is watched, restores it
					o.delete(name)
					o.create(name, labelSet{"rack": "new"})
				}
				for _, name := range o.names {
					o.restored(name, o.want[name])
				}
			}
			o.settle()
			for _, name := range o.names {
				o.hasRestored(t, name, o.want[name])
			}
		})
	}
}

// outage is a test of outages. Each node is named after what happens to it in each round.
type outage struct {
	*env

	names []string
	want  map[string]labelSet // the expected labels of each node when the watchers are back
	// These nodes are new in the current round: passing is created and deleted within the outage,
	// newcomer stays.
	passing, newcomer string
}

const (
	untouched       = "untouched"
	replaced        = "replaced"
	returnsLater    = "returns-later"
	edited          = "edited"
	editedReplaced  = "edited-replaced"
	replacedEdited  = "replaced-edited"
	replacedTwice   = "replaced-twice"
	editedAwayLater = "edited-returns-later"
	cameBackAndLeft = "came-back-and-left"

	editKey  = "in-the-outage" // the label of an edit
	roundKey = "round"
)

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{env: newEnv(t), want: map[string]labelSet{}}
	o.fleet()
	for _, suffix := range []string{
		untouched, replaced, returnsLater, edited, editedReplaced, replacedEdited, replacedTwice, editedAwayLater, cameBackAndLeft,
	} {
		name := o.name(suffix)
		o.names = append(o.names, name)
		o.create(name, labelSet{"rack": suffix})
		o.want[name] = labelSet{"rack": suffix}
	}
	return o
}

// fleet starts the watchers and processors that are missing from a typical set, and waits until
// they are ready.
func (e *env) fleet() {
	e.t.Helper()
	for _, program := range []string{"watcher", "processor"} {
		for range 2 - len(e.running(program)) {
			e.start(program, e.kubeconfig)
		}
	}
	for _, program := range []string{"watcher", "processor"} {
		for _, p := range e.running(program) {
			e.ready(p)
		}
	}
}

// kill kills all programs with that name, like kill -9.
func (e *env) kill(program string) {
	e.t.Helper()
	for _, p := range e.running(program) {
		require.NoError(e.t, p.Kill())
	}
}

// know gives each node labels of this round, and kills all watchers once these are stored. With
// withProcessors it kills all processors first: then the labels are stored as transactions, and not
// applied.
func (o *outage) know(round int, withProcessors bool) {
	o.t.Helper()
	if withProcessors {
		o.kill("processor")
	}
	value := strconv.Itoa(round)
	for _, name := range o.names {
		o.set(name, roundKey, value)
		o.want[name][roundKey] = value
	}
	for _, name := range o.names {
		o.eventually(func(c *assert.CollectT) {
			assert.True(c, o.isStored(c, name, value), "neither the record of node %s nor its queue has the label", name)
		}, "the labels of node %s are stored", name)
	}
	o.kill("watcher")
}

// isStored reports whether a node's record, or a transaction, contains the label of a round.
func (o *outage) isStored(t require.TestingT, name, value string) bool {
	if r := o.record(t, name); r != nil && r.Labels[roundKey] == value {
		return true
	}
	return slices.ContainsFunc(o.queue(t, name), func(cm corev1.ConfigMap) bool { return cm.Data[roundKey] == value })
}

// change changes each node as its name describes, and adds a label with the round.
func (o *outage) change(round int) {
	o.t.Helper()
	value := strconv.Itoa(round)
	again := func(suffix string) {
		o.delete(o.name(suffix))
		o.create(o.name(suffix), labelSet{"rack": "new", "kubelet": value})
	}
	edit := func(suffix string) { o.set(o.name(suffix), editKey, value) }

	again(replaced)
	o.delete(o.name(returnsLater))
	edit(edited)
	o.remove(o.name(edited), "rack")
	edit(editedReplaced)
	again(editedReplaced)
	again(replacedEdited)
	edit(replacedEdited)
	again(replacedTwice)
	edit(replacedTwice)
	again(replacedTwice)
	edit(editedAwayLater)
	o.delete(o.name(editedAwayLater))
	again(cameBackAndLeft)
	edit(cameBackAndLeft)
	o.delete(o.name(cameBackAndLeft))

	// The label of an edit survives only on a node that was not replaced.
	o.want[o.name(edited)] = labelSet{roundKey: value, editKey: value}

	o.passing, o.newcomer = o.name("passing-"+value), o.name("newcomer-"+value)
	o.create(o.passing, labelSet{"rack": "never-seen"})
	o.delete(o.passing)
	o.create(o.newcomer, labelSet{"rack": "newcomer"})
	o.set(o.newcomer, editKey, value)
}

// check waits until every node has the expected labels.
func (o *outage) check(round int) {
	o.t.Helper()
	for _, suffix := range []string{returnsLater, editedAwayLater, cameBackAndLeft} {
		o.create(o.name(suffix), labelSet{"rack": "new"})
	}
	o.create(o.passing, labelSet{"rack": "first-seen"})
	for _, suffix := range []string{replaced, returnsLater, editedReplaced, replacedEdited, replacedTwice, editedAwayLater, cameBackAndLeft} {
		o.restored(o.name(suffix), o.want[o.name(suffix)])
	}
	for _, suffix := range []string{untouched, edited} {
		name := o.name(suffix)
		o.saved(name, o.want[name])
		own, _ := o.labels(o.t, name)
		assert.Equal(o.t, o.want[name], own, "an edit is not undone")
	}

	strangers := map[string]labelSet{
		o.passing:  {"rack": "first-seen"},
		o.newcomer: {"rack": "newcomer", editKey: strconv.Itoa(round)},
	}
	for name, want := range strangers {
		o.saved(name, want)
		own, marker := o.labels(o.t, name)
		assert.Equal(o.t, want, own)
		assert.Empty(o.t, marker, "node %s is new", name)
		o.names = append(o.names, name)
		o.want[name] = want
	}
}

// TestOutageOfEveryWatcherWithoutRecordedUpdates covers watchers that do not record updates: the
// only known labels are those of the last incarnation whose end a watcher saw. All later changes
// are lost if the node is replaced during the outage, and nothing can be restored to a node in its
// first incarnation.
func TestOutageOfEveryWatcherWithoutRecordedUpdates(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	start := func() {
		e.watcher("--record-updates=false")
		e.processor()
	}
	start()
	firstLife, secondLife, later, alive := e.name("first-life"), e.name("second-life"), e.name("returns-later"), e.name("alive")
	known := labelSet{"rack": "r7", "team": "blue"}
	for _, name := range []string{secondLife, later, alive} {
		e.create(name, labelSet{"rack": "r7"})
		e.set(name, "team", "blue")
		e.delete(name)
		e.create(name, nil)
		e.restored(name, known)
		e.set(name, "team", "not-recorded")
	}
	e.recorded(e.create(firstLife, known).UID, txn.Added)
	for name := range e.nodes {
		e.drained(name)
	}

	e.kill("watcher")
	e.kill("processor")
	for _, name := range []string{firstLife, secondLife} {
		e.delete(name)
		e.create(name, labelSet{"rack": "new"})
	}
	e.delete(later)
	e.set(alive, "edited", "in-the-outage")
	start()

	e.create(later, nil)
	e.restored(secondLife, known)
	e.restored(later, known)
	// A node that was not replaced keeps its edits, and they are recorded when a watcher sees its
	// end.
	wantAlive := labelSet{"rack": "r7", "team": "not-recorded", "edited": "in-the-outage"}
	e.hasRestored(t, alive, wantAlive)
	for _, name := range []string{firstLife, alive} {
		e.delete(name)
		e.create(name, nil)
	}
	e.restored(alive, wantAlive)
	e.restored(firstLife, labelSet{"rack": "new"})
	e.settle()
	e.hasRestored(t, alive, wantAlive)
	e.hasRestored(t, firstLife, labelSet{"rack": "new"})
}

func TestAnyOutagesGiveTheResultOfTheModel(t *testing.T) {
	t.Parallel()
	const outages, steps = 4, 80
	d := newDifferential(t, "--live-labels=")
	for i := range outages {
		for range steps {
			d.step()
		}
		d.compare()
		d.waitStored()
		d.kill("watcher")
		if i%2 == 1 {
			d.kill("processor")
		}

		d.model.outage(true)
		for range steps {
			d.step()
		}
		for range 2 {
			d.watcher()
		}
		if i%2 == 1 {
			d.processor("--live-labels=")
		}
		d.model.outage(false)
		d.compare()
	}
	d.replaceAll()
}

// outage begins or ends an outage of every watcher. During the outage, the known labels of a node
// are those that it had at the beginning.
func (m *model) outage(isOn bool) {
	m.isOutage = isOn
	for _, n := range m.nodes {
		n.known = maps.Clone(n.labels)
	}
}

// waitStored waits until every node has its labels back, and its record contains the labels to
// restore as of the last event: an earlier event may have left the same labels.
func (d *differential) waitStored() {
	d.t.Helper()
	for name, n := range d.model.nodes {
		if n.isLive && n.isReturned {
			d.restored(name, n.labels)
			n.isReturned = false
		}
		if last := d.seen[name]; last != nil && !n.isLive {
			d.recorded(last.UID, txn.Deleted)
		} else if last != nil {
			d.reached(last)
		}
		if want := n.stored(); want != nil {
			d.saved(name, want)
		}
	}
}
