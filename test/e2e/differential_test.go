package e2e_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// fuzzSteps is how many events the differential test makes.
const fuzzSteps = 400

// model is what the labels of every node are to be: the promises in their simplest form.
type model struct {
	nodes map[string]*modelNode
	// isOutage says that no watcher runs.
	isOutage bool
}

type modelNode struct {
	isLive bool
	// labels are those that the live node is to have, sooner or later.
	labels labelSet
	// saved are those that its next incarnation is to get; nil: there was none before that is known.
	saved labelSet
	// known are those that are saved if the live node is deleted in an outage.
	known labelSet
	// isReturned says that the live node has saved labels to get.
	isReturned bool
}

func (m *model) create(name string, own labelSet) {
	n := m.nodes[name]
	n.isLive, n.labels, n.known, n.isReturned = true, maps.Clone(own), maps.Clone(n.saved), false
	if n.saved != nil {
		n.labels, n.isReturned = maps.Clone(n.saved), true
	}
}

// edit changes labels of a live node; nil removes one. Edits before a restore are overwritten, which is a documented limit.
func (m *model) edit(name string, changes map[string]*string) {
	n := m.nodes[name]
	if n.isReturned {
		return
	}
	for key, value := range changes {
		delete(n.labels, key)
		if value != nil {
			n.labels[key] = *value
		}
	}
}

// delete ends an incarnation. One that has not got its labels back yet has no others to save.
func (m *model) delete(name string) {
	n := m.nodes[name]
	n.isLive, n.saved = false, maps.Clone(n.labels)
	if m.isOutage {
		n.saved = maps.Clone(n.known)
	}
}

// stored are the labels that are to be in the record, nil if there is none.
func (n *modelNode) stored() labelSet {
	if n.isLive {
		return n.labels
	}
	return n.saved
}

// differential does the same to the model and to the cluster.
type differential struct {
	*env

	random *rand.Rand
	model  *model
	names  []string
	keys   []string
	// seen are the Nodes as the last change that was made while watchers ran left them, or as they were
	// before they were deleted meanwhile.
	seen map[string]*corev1.Node
}

func TestAnyEventsGiveWhatTheModelSays(t *testing.T) {
	t.Parallel()
	d := newDifferential(t, "--live-labels=")
	for range fuzzSteps {
		d.step()
	}
	d.compare()
	d.replaceAll()
}

// newDifferential starts two watchers and two processors, these with the args.
func newDifferential(t *testing.T, args ...string) *differential {
	t.Helper()
	began := *seed
	if began == 0 {
		began = time.Now().UnixNano()
	}
	t.Logf("-e2e.seed=%d", began)
	e := newEnv(t)
	for range 2 {
		e.watcher()
		e.processor(args...)
	}
	d := &differential{
		env: e, model: &model{nodes: map[string]*modelNode{}}, random: rand.New(rand.NewPCG(uint64(began), 0)),
		keys: append(slices.Sorted(maps.Keys(awkward())), "rack", "example.com/team", "x_U", "x_S", "0"),
		seen: map[string]*corev1.Node{},
	}
	d.chooseNames()
	return d
}

// replaceAll gives every node one more incarnation, and compares for the last time.
func (d *differential) replaceAll() {
	d.t.Helper()
	for _, name := range d.names {
		d.ensureGone(name)
		d.create(name)
	}
	d.compare()
	d.settle()
	d.compare()
}

// chooseNames takes names of the least and the greatest length and some between. A foreign
// cluster may have nodes with short names itself, so there they all begin with the prefix.
func (d *differential) chooseNames() {
	prefix := ""
	if d.plane == nil {
		prefix = d.prefix
	}
	for _, length := range []int{len(prefix) + 1, len(prefix) + 2, 63, 64, 252, 253} {
		d.names = append(d.names, d.randomName(prefix, length))
	}
	for range 8 {
		d.names = append(d.names, d.randomName(prefix, len(prefix)+3+d.random.IntN(250-len(prefix))))
	}
	slices.Sort(d.names)
	d.names = slices.Compact(d.names)
	for _, name := range d.names {
		d.model.nodes[name] = &modelNode{}
	}
}

// randomName returns a DNS subdomain of that length, dots and dashes inside.
func (d *differential) randomName(prefix string, length int) string {
	const alphanumeric, all = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789-."
	name := []byte(prefix)
	for len(name) < length {
		chars := alphanumeric
		// A dot or a dash follows and precedes what is neither.
		if last := len(name) - 1; last > len(prefix) && len(name) < length-1 && strings.IndexByte(alphanumeric, name[last]) >= 0 {
			chars = all
		}
		name = append(name, chars[d.random.IntN(len(chars))])
	}
	return string(name)
}

// step does one thing to one node.
func (d *differential) step() {
	d.t.Helper()
	name := d.names[d.random.IntN(len(d.names))]
	switch {
	case !d.model.nodes[name].isLive:
		d.create(name)
	case d.random.IntN(3) == 0:
		d.ensureGone(name)
	default:
		d.editSome(name)
	}
}

func (d *differential) create(name string) {
	d.t.Helper()
	own := labelSet{}
	for range d.random.IntN(5) {
		own[d.randomKey()] = d.randomValue()
	}
	delete(d.seen, name)
	node := d.env.create(name, own)
	d.see(node)
	d.model.create(name, own)
}

func (d *differential) ensureGone(name string) {
	d.t.Helper()
	if d.model.nodes[name].isLive {
		before := d.node(d.t, name)
		delete(d.seen, name)
		d.delete(name)
		d.see(before)
		d.model.delete(name)
	}
}

// editSome sets and removes labels in one write. It waits for the restore of a node that is owed
// one, unless none can come.
func (d *differential) editSome(name string) {
	d.t.Helper()
	n := d.model.nodes[name]
	if n.isReturned && !d.model.isOutage {
		d.restored(name, n.labels)
		n.isReturned = false
	}
	changes := map[string]*string{}
	for range 1 + d.random.IntN(3) {
		key := d.randomKey()
		changes[key] = nil
		if d.random.IntN(3) > 0 {
			changes[key] = new(d.randomValue())
		}
	}
	before := d.node(d.t, name)
	after := d.edit(name, changes)
	if !maps.Equal(before.Labels, after.Labels) {
		d.see(after)
	}
	d.model.edit(name, changes)
}

// see notes a change of a Node that watchers see.
func (d *differential) see(n *corev1.Node) {
	if !d.model.isOutage {
		d.seen[n.Name] = n
	}
}

// compare waits until every live node has the labels of the model.
func (d *differential) compare() {
	d.t.Helper()
	for _, name := range d.names {
		n := d.model.nodes[name]
		if !n.isLive {
			continue
		}
		d.eventually(func(c *assert.CollectT) {
			own, _ := d.labels(c, name)
			require.Equal(c, n.labels, own)
		}, "node %s has the labels of the model", name)
	}
}

func (d *differential) randomKey() string { return d.keys[d.random.IntN(len(d.keys))] }

func (d *differential) randomValue() string {
	return []string{"", "v", strings.Repeat("x", 63), strconv.Itoa(d.random.IntN(100))}[d.random.IntN(4)]
}
