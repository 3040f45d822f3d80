package simulation

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
)

// guardedKeys are a label, an annotation and a taint of users and kubelets that an admission policy
// may refuse. They sort before, between and after the other labels. Their values begin with
// [byUser], [byTemplate] or [byKubelet].
var guardedKeys = [...]string{"aa", "annotation:g", "taint:z:NoSchedule"}

// trustIndex is the index of the trust label among the labels that the policy may refuse.
const trustIndex = len(guardedKeys)

const (
	byUser     = "v" // a user has set it on a node that has its labels
	byTemplate = "t" // a user has created the node with it
	byKubelet  = "k"
)

var (
	errBrokeRefused = errors.New("refusals: a label that is not refused is restored, and a refused one stays saved and is tried on the next node")
	errAskedAgain   = errors.New("refusals: the same change is not asked for again on the same node")
	errTriesMany    = errors.New("refusals: the number of dry runs is bounded")
)

// errRefusedAnyway is the answer to a dry run that a mutant takes for refused.
var errRefusedAnyway = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, nodeName, nil)

// rule is what the admission policy refuses about a label.
type rule int

const (
	free    rule = iota
	frozen       // every change
	even         // values with an even number
	fixed        // changes of a label that is there
	removed      // its removal
)

// admissionPolicy is an admission policy that binds processors, and in some schedules the webhook.
type admissionPolicy struct {
	rules    [trustIndex + 1]rule
	together bool // the first two labels do not change together
	whole    bool // no restore is allowed
}

// guardedKey returns the label with an index in the rules.
func (w *world) guardedKey(i int) string {
	if i == trustIndex {
		return w.trustKey
	}
	return guardedKeys[i]
}

func isGuarded(key string) bool { return slices.Contains(guardedKeys[:], key) }

// refuses reports whether a rule refuses the change of a label.
func (r rule) refuses(before, after string, wasThere, isThere bool) bool {
	if wasThere == isThere && before == after {
		return false
	}
	switch r {
	case frozen:
		return true
	case even:
		return isThere && (after[len(after)-1]-'0')%2 == 0
	case fixed:
		return wasThere
	case removed:
		return !isThere
	case free:
	}
	return false
}

// refusal returns the answer of the admission policy to a patch that the Node takes, or nil.
func (w *world) refusal(read *nodeview.Node, wanted map[string]string) error {
	p := &w.policy
	if *p == (admissionPolicy{}) {
		return nil
	}
	after := maps.Clone(w.node.Labels)
	merge(after, read.Labels, wanted)
	isRefused, changed, named := p.whole, 0, w.guardedKey(0) // which may have nothing to do with it
	for i, r := range p.rules {
		key := w.guardedKey(i)
		former, wasThere := w.node.Labels[key]
		value, isThere := after[key]
		if wasThere != isThere || former != value {
			changed |= 1 << i
		}
		if r.refuses(former, value, wasThere, isThere) {
			isRefused, w.ghost.guards[i].alone, named = true, w.incarnation, key
		}
	}
	if p.together && changed&3 == 3 {
		isRefused, w.ghost.guards[0].together, w.ghost.guards[1].together = true, w.incarnation, w.incarnation
	}
	switch {
	case !isRefused:
		return nil
	case w.incarnation%2 == 0:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, nodeName, field.ErrorList{field.Forbidden(field.NewPath("metadata", "labels").Key(named), "by policy")})
	case w.incarnation%4 == 1:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, nodeName, errors.New(named+" by policy"))
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, nodeName, errors.New("by policy"))
}

// merge makes the changes of a patch to the labels of a Node.
func merge(own, read, wanted map[string]string) {
	for key := range read {
		if _, isWanted := wanted[key]; !isWanted {
			delete(own, key)
		}
	}
	for key, value := range wanted {
		if former, wasThere := read[key]; !wasThere || former != value {
			own[key] = value
		}
	}
}

// noteGuarded notes on a Node which guarded labels are its kubelet's.
func noteGuarded(n *nodeview.Node, acted time.Time) {
	machine := n.Machine
	next := plainKeys(machine).Union(labels.KeysOf(maps.Keys(n.Labels)).Where(func(key string) bool {
		return isGuarded(key) && strings.HasPrefix(n.Labels[key], byKubelet)
	}))
	if next != machine {
		n.Machine, n.ActedAt = next, acted
	}
}

// machineOf returns the keys of the agents of a Node, without guarded labels.
func machineOf(n *nodeview.Node) labels.Keys { return plainKeys(n.Machine) }

// plainKeys returns keys without guarded labels.
func plainKeys(keys labels.Keys) labels.Keys {
	if len(keys) == 0 {
		return keys
	}
	return keys.Where(func(key string) bool { return !isGuarded(key) })
}

// guard is the ghost's state of a guarded label.
type guard struct {
	value      string // that users have given it on a node that had its labels; "" for none
	isMachines bool   // a kubelet has ever set it
	// alone and together are the last incarnations on which the policy refused a change of the label,
	// alone and together with another one.
	alone, together int
}

// isRefused reports whether a change of a label was refused on the live incarnation.
func (g *ghost) isRefused(w *world, i int) bool {
	return g.guards[i].alone == w.incarnation || g.guards[i].together == w.incarnation
}

// checksGuarded reports whether the guarded labels are known.
func (g *ghost) checksGuarded() bool {
	return g.guarded && g.strict && !g.guardsUnsure && !g.by[g.owner].isLoose
}

// createsGuarded must be called after a Node was created.
func (g *ghost) createsGuarded(w *world, requested map[string]string) {
	for i, key := range guardedKeys {
		switch value := requested[key]; {
		case strings.HasPrefix(value, byKubelet):
			g.guards[i].isMachines = true
		case value != "" && g.owner == w.incarnation:
			g.guards[i].value = value
		}
	}
}

// admitsGuarded must be called when the record notes that an incarnation had its labels when it was
// created. What it was created with stays in the place of a label of the former machine.
func (g *ghost) admitsGuarded(given map[string]string) {
	for i, key := range guardedKeys {
		if l := &g.guards[i]; l.value == "" && (l.isMachines || !labels.IsLabel(key)) && strings.HasPrefix(given[key], byTemplate) {
			l.value = given[key]
		}
	}
}

// givesGuarded must be called before a restore.
func (g *ghost) givesGuarded(w *world, read *nodeview.Node, wanted map[string]string) {
	if !g.checksGuarded() {
		return
	}
	for i, key := range guardedKeys {
		l := &g.guards[i]
		before, given := read.Labels[key], wanted[key]
		switch stays := before == given; {
		case given == l.value && (!g.owns(w) || before == ""):
		case stays && (g.owns(w) || l.value == "" && strings.HasPrefix(before, byKubelet)):
		case stays && l.value != "" && g.isRefused(w, i):
		case stays && l.value == "" && (g.isRefused(w, i) || l.isMachines || !labels.IsLabel(key)):
			l.value = before // it is not or cannot be removed, so it is the node's from now on
		default:
			w.breaks(errBrokeRefused, "%s has %s %q and gets %q, and it ought to be %q", read.UID, key, before, given, l.value)
		}
	}
}

// checkGuarded compares the final state with the expected one.
func (g *ghost) checkGuarded(w *world) {
	if !g.checksGuarded() || w.broken != nil || !w.record.hasLabels() {
		return
	}
	all, away := w.record.All(), 0
	for i, key := range guardedKeys {
		l := g.guards[i]
		if saved := all[key]; (w.node == nil || g.recordsUpdates) && saved != l.value && !l.mayBeOfMachine(saved) {
			w.breaks(errBrokeRefused, "saved is %s %q, and it ought to be %q", key, saved, l.value)
		}
		if w.node == nil || !g.owns(w) {
			continue
		}
		has := w.node.Labels[key]
		if has == l.value || l.mayBeOfMachine(has) {
			continue
		}
		if !g.isRefused(w, i) || !w.isWithheldAsRefused(key, l.value) {
			w.breaks(errBrokeRefused, "%s has %s %q, and %q was not refused or is not withheld", w.node.UID, key, has, l.value)
		}
		if l.alone != w.incarnation {
			away++
		}
	}
	if away > 1 {
		w.breaks(errBrokeRefused, "%s lacks both labels of which one was refused", w.node.UID)
	}
}

// checkReadable checks that a record can be read, with the refused labels that were written.
func (w *world) checkReadable(r record.Record) {
	parsed, err := record.Parse(r.ConfigMap("records"))
	if err != nil {
		w.breaks(errBrokeRefused, "the record cannot be read: %v", err)
		return
	}
	isOther := func(set record.Withheld) bool { return !set.State.IsRefused() }
	r.Withheld, parsed.Withheld = slices.DeleteFunc(slices.Clone(r.Withheld), isOther), slices.DeleteFunc(parsed.Withheld, isOther)
	if !parsed.Equal(r) {
		w.breaks(errBrokeRefused, "%v, %v is read as %v, %v", r.Labels, r.Withheld, parsed.Labels, parsed.Withheld)
	}
}

// mayBeOfMachine reports whether a label without a value of users may have this value.
func (l guard) mayBeOfMachine(value string) bool {
	return l.value == "" && (l.isMachines || strings.HasPrefix(value, byKubelet))
}

// isWithheldAsRefused reports whether a label is withheld because the API server has refused it on
// the live Node.
func (w *world) isWithheldAsRefused(key, value string) bool {
	for _, set := range w.record.Withheld {
		if saved, isThere := set.Labels[key]; isThere && saved == value && set.State.IsRefusedFor(w.node.UID) {
			return true
		}
	}
	return false
}

// asks must be called before a processor asks for a restore, also in a dry run. It may not ask for a
// label that the record that it knows withholds as refused.
func (a *processorActor) asks(read *nodeview.Node, wanted map[string]string) {
	if a.isOvertaken() {
		return
	}
	for _, set := range a.world.records[a.read].withheld() {
		for key := range set.Labels {
			if set.State.IsRefusedFor(read.UID) && read.Labels[key] != wanted[key] {
				a.world.breaks(errAskedAgain, "%s has %s %q, and is to get %q", read.UID, key, read.Labels[key], wanted[key])
			}
		}
	}
}

// checkTries checks the number of dry runs since the last restore that was refused. All changed labels
// are tried twice at most, and if few are refused, far less often.
func (a *processorActor) checkTries(refused int) {
	changed := a.broken.changed
	if bound := min(2*changed, refused*(2*bits.Len(uint(changed))+2)+bits.Len(uint(changed))) + 2 + 6; a.broken.tries > bound {
		a.world.breaks(errTriesMany, "%d for %d labels, of which %d are refused", a.broken.tries, changed, refused)
	}
}

// isSought reports whether a processor is finding out which labels are refused. If the policy changes
// meanwhile, it may blame another label.
func (s *simulation) isSought() bool {
	return slices.ContainsFunc(s.processors[:], func(p *processorActor) bool { return p.broken.seeks })
}

// actOnGuarded performs an action of a user on a guarded label, or of an administrator on the policy.
func (a *userActor) actOnGuarded(action userAction) {
	w := a.world
	if action == changesPolicy {
		a.changePolicy()
		return
	}
	i := a.choices.next(len(guardedKeys))
	key, l := guardedKeys[i], &w.ghost.guards[i]
	switch {
	case !w.ghost.owns(w): // before the restore it would be overwritten
	case action == setsGuarded:
		l.value = byUser + strconv.Itoa(w.rv)
		w.relabel(func(own map[string]string) { own[key] = l.value })
		a.log("sets %s of %s: %s", key, nodeText(w.node), l.value)
	case action == removesGuarded && l.value != "" && w.node.Labels[key] == l.value && w.isNoted():
		// A label that was set and removed before it was saved leaves no trace.
		w.ghost.guardsUnsure = w.ghost.guardsUnsure || w.record.All()[key] != l.value
		l.value = ""
		w.relabel(func(own map[string]string) { delete(own, key) })
		a.log("removes %s from %s", key, nodeText(w.node))
	}
}

// changePolicy replaces the admission policy.
func (a *userActor) changePolicy() {
	if a.isSought() {
		return
	}
	p := admissionPolicy{}
	if a.choices.next(3) > 0 {
		for i := range p.rules {
			p.rules[i] = pick(&a.choices, free, frozen, free, even, fixed, removed, frozen)
		}
		p.together, p.whole = a.choices.next(4) == 3, a.choices.next(12) == 11
	}
	a.world.policy = p
	a.log("changes the policy: %v", p)
}

// drawGuarded draws the guarded labels of a request that creates a node.
func (a *userActor) drawGuarded(own map[string]string) {
	if !a.settings.guarded {
		return
	}
	for _, key := range guardedKeys {
		if by := pick(&a.choices, "", "", "", byTemplate, byKubelet); by != "" {
			own[key] = by + strconv.Itoa(a.world.rv)
		}
	}
}

// guardedPatterns are the values of --hold-back if the policy covers the requests that create nodes.
var guardedPatterns = func() labels.Patterns {
	patterns, err := labels.ParsePatterns(strings.Join(guardedKeys[:], ","))
	if err != nil {
		panic(err)
	}
	return patterns
}()

// refusals narrows schedules to labels that an admission policy refuses.
func refusals(s *settings) {
	s.guarded, s.removals, s.unsafe = true, 0, false
	s.actions = append(s.actions[:0], deletes, edits, heartbeats)
	s.newPace = max(s.newPace, 2)
	s.holdsBack = s.values == 1
	if s.values == 3 {
		s.webhook, s.uncertain, s.kubelet, s.comesGated, s.behindHook, s.gate, s.lateEdit = 40, 4, 0, 8, 24, s.eager == 8, 0
	}
	if s.eager == 60 {
		s.trust = 56
	}
}
