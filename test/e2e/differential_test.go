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

// fuzzSteps is the number of events in the differential test.
const fuzzSteps = 400

// model holds the expected labels of every node: the promises in their simplest form.
type model struct {
	nodes map[string]*modelNode
	// isOutage reports that no watcher runs.
	isOutage bool
}

type modelNode struct {
	isLive bool
	// labels are the labels that the live node must have eventually.
	labels labelSet
	// saved are the labels that the next incarnation must get; nil if no earlier incarnation is
	// known.
	saved labelSet
	// known are the labels that are saved if the live node is deleted during an outage.
	known labelSet
	// isReturned reports that the live node is still to receive its saved labels.
	isReturned bool
}

func (m *model) create(name string, own labelSet) {
	n := m.nodes[name]
	n.isLive, n.labels, n.known, n.isReturned = true, maps.Clone(own), maps.Clone(n.saved), false
	if n.saved != nil {
		n.labels, n.isReturned = maps.Clone(n.saved), true
	}
}

// edit changes labels of a live node; nil removes one. Edits before a restore are overwritten,
// which is a documented limit.
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

// delete ends an incarnation. If the incarnation was not restored yet, the saved labels do not
// change.
func (m *model) delete(name string) {
	n := m.nodes[name]
	n.isLive, n.saved = false, maps.Clone(n.labels)
	if m.isOutage {
		n.saved = maps.Clone(n.known)
	}
}

// stored returns the labels that the record must contain, nil if there is no record.
func (n *modelNode) stored() labelSet {
	if n.isLive {
		return n.labels
	}
	return n.saved
}

// differential applies the same changes to the model and to the cluster.
type differential struct {
	*env

	random *rand.Rand
	model  *model
	names  []string
	keys   []string
	// seen holds each Node after the last change that was made while watchers ran. For a Node that
	// was deleted since, it is the state before the deletion.
	seen map[string]*corev1.Node
}

func TestAnyEventsGiveTheResultOfTheModel(t *testing.T) {
	t.Parallel()
	d := newDifferential(t, "--live-labels=")
	for range fuzzSteps {
		d.step()
	}
	d.compare()
	d.replaceAll()
}

// newDifferential starts two watchers, and two processors with the args.
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

// replaceAll replaces every node by a new incarnation, and compares for the last time.
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

// chooseNames chooses names of minimum and maximum length, and some in between. A foreign cluster
// may itself have nodes with short names, so all names have the prefix there.
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

// randomName returns a DNS subdomain of the given length, with dots and dashes inside.
func (d *differential) randomName(prefix string, length int) string {
	const alphanumeric, all = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789-."
	name := []byte(prefix)
	for len(name) < length {
		chars := alphanumeric
		// Dots and dashes must not be adjacent.
		if last := len(name) - 1; last > len(prefix) && len(name) < length-1 && strings.IndexByte(alphanumeric, name[last]) >= 0 {
			chars = all
		}
		name = append(name, chars[d.random.IntN(len(chars))])
	}
	return string(name)
}

// step changes one node.
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

// editSome sets and removes labels in one write. If the node is due to be restored, it waits for
// that first, unless no restore can happen.
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

// see records a change of a Node that watchers see.
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
