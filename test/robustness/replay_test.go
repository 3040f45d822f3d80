package robustness

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

const (
	// shownEvents is the number of events of a node that are shown, up to the event that breaks a
	// promise.
	shownEvents = 30
	// shownViolations is the number of violations of one promise that are shown; all are counted.
	shownViolations = 3
)

// violation is a broken promise.
type violation struct {
	promise error
	what    string
	// history contains the last events of the node. The last one breaks the promise.
	history []string
}

// String returns the violation in a readable form.
func (v violation) String() string {
	return fmt.Sprintf("%v\n  %s\n    %s", v.promise, v.what, strings.Join(v.history, "\n    "))
}

// replay applies a history and checks each event against every promise.
type replay struct {
	ghost  *ghost
	nodes  map[string]*node
	recent map[string][]string // the last events of each node, for violations

	violations []violation
	broken     map[error]int
	tally      tally
}

// tally counts the contents of a history.
type tally struct {
	events, creates, deletes, restores, admitted, recorded, removed, saves int
}

func newReplay(g *ghost) *replay {
	return &replay{ghost: g, nodes: map[string]*node{}, recent: map[string][]string{}, broken: map[error]int{}}
}

// next processes the next event.
func (r *replay) next(e event) {
	n := r.nodes[e.name]
	if n == nil {
		n = newNode()
		r.nodes[e.name] = n
	}
	r.tally.count(n, e)
	r.remember(e.name, describe(n, e))
	for _, p := range promises {
		if p.event != nil {
			r.note(e.name, p, p.event(r.ghost, n, e))
		}
	}
	n.apply(e)
}

// end checks the final states.
func (r *replay) end() {
	for name, n := range r.nodes {
		for _, p := range promises {
			if p.end != nil {
				r.note(name, p, p.end(r.ghost, n))
			}
		}
	}
}

func (r *replay) note(name string, p promise, err error) {
	if err == nil {
		return
	}
	r.broken[p.name]++
	if r.broken[p.name] <= shownViolations {
		r.violations = append(r.violations, violation{
			promise: p.name,
			what:    fmt.Sprintf("node %s: %v", name, err),
			history: append([]string(nil), r.recent[name]...),
		})
	}
}

func (r *replay) remember(name, line string) {
	r.recent[name] = append(r.recent[name], line)
	if surplus := len(r.recent[name]) - shownEvents; surplus > 0 {
		r.recent[name] = r.recent[name][surplus:]
	}
}

func (t *tally) add(o tally) {
	t.events += o.events
	t.creates += o.creates
	t.deletes += o.deletes
	t.restores += o.restores
	t.admitted += o.admitted
	t.recorded += o.recorded
	t.removed += o.removed
	t.saves += o.saves
}

func (t *tally) count(n *node, e event) {
	t.events++
	switch {
	case e.record != nil:
		t.saves++
		if n.newlyAdmitted(e.record.now) != nil {
			t.admitted++
		}
	case e.transaction != nil && e.transaction.isRemoved:
		t.removed++
	case e.transaction != nil:
		t.recorded++
	case e.node.isDeleted:
		t.deletes++
	case n.live == nil:
		t.creates++
	case isRestore(n.live, e.node):
		t.restores++
	}
}

// describe describes an event in one line.
func describe(n *node, e event) string {
	return fmt.Sprintf("%-8d %s", e.revision, describeObject(n, e))
}

func describeObject(n *node, e event) string {
	switch {
	case e.transaction != nil:
		return describeTransaction(e.transaction)
	case e.record != nil && e.record.now == nil:
		return "record       removed"
	case e.record != nil:
		now, before := e.record.now, labelSet{}
		if n.record != nil {
			before = n.record.Labels
		}
		return fmt.Sprintf("record       version %s source %s restored %s@%s %s", now.Revision, short(now.Source), short(now.Restored.UID), now.Restored.Revision, diff(before, now.Labels))
	case e.node.isDeleted:
		return fmt.Sprintf("node %s    deleted with %v", short(e.node.uid), e.node.labels)
	case n.live == nil:
		return fmt.Sprintf("node %s    created with %v marker %q", short(e.node.uid), e.node.labels, e.node.marker)
	}
	verb := "written"
	if isRestore(n.live, e.node) {
		verb = "restored"
	}
	return fmt.Sprintf("node %s    %s %s marker %q", short(e.node.uid), verb, diff(n.live.last().labels, e.node.labels), e.node.marker)
}

func describeTransaction(t *transactionWrite) string {
	verb, more := "stored", ""
	if t.isRemoved {
		verb = "removed"
	} else if t.Type != txn.Added {
		more = fmt.Sprint(t.Labels)
	}
	return fmt.Sprintf("  txn %s  %s %s@%s marker %q %s", short(t.UID), verb, t.Type, t.Revision, t.Marker, more)
}

// diff describes the changes from one set of labels to another.
func diff(before, after labelSet) string {
	var changes []string
	for _, key := range labels.Differing(before, after) {
		if is, isThere := after[key]; isThere {
			changes = append(changes, "+"+key+"="+is)
		} else {
			changes = append(changes, "-"+key)
		}
	}
	if len(changes) == 0 {
		return "no label changed"
	}
	return strings.Join(changes, " ")
}

// short returns a prefix of a UID that is long enough to distinguish the incarnations of a node.
func short(uid types.UID) string { return string(uid[:min(len(uid), 6)]) }
