package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
)

// reporter is the prefix of the programs whose events are part of a story.
const reporter = "nodekeeper-"

// Moment is an event in the history of a node that has left a trace in the cluster.
type Moment struct {
	At *metav1.Time `json:"at"`
	// Source is the kind of object that has the trace: Node, Record, Transaction or Event.
	Source string `json:"source"`
	Text   string `json:"text"`
	// Warning reports whether it is a failure.
	Warning bool      `json:"warning,omitempty"`
	of      types.UID // the incarnation of the node, "" if it is unknown
}

// Story is the history of a node, oldest first.
type Story struct {
	Moments []Moment `json:"moments"`
	// Unknown lists what could not be read because rights are missing.
	Unknown []string `json:"unknown,omitempty"`
}

// Story returns the history of a node. It is never complete: the Node and the record have only
// their last states, and the API server deletes events after about an hour. Times have a resolution
// of a second, so moments within one second can be in any order.
func (c *Cluster) Story(ctx context.Context, n *Node, policy labels.Policy) (*Story, error) {
	s := &Story{Moments: append(n.nodeMoments(), n.recordMoments()...)}
	s.Moments = append(s.Moments, n.transactionMoments(policy)...)
	events, err := c.Events(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	s.Unknown = events.Unknown
	s.Moments = append(s.Moments, events.Moments...)
	sortMoments(s.Moments, n.Live)
	return s, nil
}

// Events returns the events of nodekeeper's programs about a node and its record, oldest first.
func (c *Cluster) Events(ctx context.Context, name string) (*Story, error) {
	s, missing := &Story{}, ""
	events, err := c.eventMoments(ctx, name)
	if err := unlessForbidden(err, &missing, "events: the rights to list them are missing"); err != nil {
		return nil, err
	}
	if missing != "" {
		s.Unknown = append(s.Unknown, missing)
	}
	s.Moments = events
	return s, nil
}

// sortMoments sorts the oldest first, and within a second those of former incarnations before those
// of the live Node.
func sortMoments(all []Moment, live *nodeview.Node) {
	incarnation := func(m Moment) int {
		if live == nil || m.of == "" || m.of == live.UID {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b Moment) int {
		return cmp.Or(a.At.Truncate(time.Second).Compare(b.At.Truncate(time.Second)), cmp.Compare(incarnation(a), incarnation(b)))
	})
}

// nodeMoments returns the moments in the metadata of the Node.
func (n *Node) nodeMoments() (all []Moment) {
	if n.Live == nil {
		return nil
	}
	add := func(at *metav1.Time, format string, args ...any) {
		if at != nil {
			all = append(all, Moment{At: at, Source: "Node", Text: fmt.Sprintf(format, args...), of: n.Live.UID})
		}
	}
	add(timeOf(n.Live.Created), "the Node was created, with uid %s", n.Live.UID)
	add(RestoredAt(n.Live.Marker, n.Live.Managed), "it got the labels of version %s", n.Live.Marker)
	add(timeOf(n.Live.DeletedAt), "the Node was deleted, and waits for its finalizers: %s", strings.Join(n.Live.Finalizers, ", "))
	return all
}

// recordMoments returns the moments in the record.
func (n *Node) recordMoments() []Moment {
	r := n.Saved.Record
	if r == nil || r.SavedAt.IsZero() {
		return nil
	}
	from := "by hand"
	if r.Source != "" {
		from = "of the Node with uid " + string(r.Source)
	}
	all := []Moment{{At: &metav1.Time{Time: r.SavedAt}, Source: "Record", Text: fmt.Sprintf("labels were saved (%d, version %s), %s", len(r.Labels), r.Revision, from), of: r.Source}}
	if n.State() != Away {
		return all
	}
	lastHeard := LastHeard(n.Saved.Object)
	if at := endedAt(r, lastHeard); !at.IsZero() {
		return append(all, Moment{At: &metav1.Time{Time: at}, Source: "Record", Text: "the node was deleted"})
	}
	return append(all, Moment{At: &metav1.Time{Time: lastHeard}, Source: "Record", Text: "the node was last heard of"})
}

// transactionMoments returns the recorded events that have not taken effect.
func (n *Node) transactionMoments(policy labels.Policy) []Moment {
	decisions := n.Forecast(policy)
	all := make([]Moment, 0, len(n.Pending))
	for i, t := range n.Pending {
		will, reason := "will wait", "the record cannot be read"
		if i < len(decisions) {
			will, reason = "will "+decisions[i].Action.String(), decisions[i].Reason
			if decisions[i].Action == preserve.Nothing {
				will = "will do nothing"
			}
		}
		at := cmp.Or(t.ObservedAt, t.Created)
		all = append(all, Moment{
			At: &metav1.Time{Time: at}, Source: "Transaction", of: t.UID,
			Text: fmt.Sprintf("a watcher recorded that the node was %s, at version %s; not applied yet: %s: %s", t.Type, t.Revision, will, reason),
		})
	}
	return all
}

// eventMoments returns the events of nodekeeper's programs about a node and its record, oldest
// first.
func (c *Cluster) eventMoments(ctx context.Context, name string) ([]Moment, error) {
	aboutNode, err := c.events(ctx, metav1.NamespaceDefault, client.MatchingFields{"regarding.kind": "Node", "regarding.name": name})
	if err != nil {
		return nil, err
	}
	aboutRecord, err := c.events(ctx, c.MetadataNamespace, client.MatchingFields{"regarding.kind": "ConfigMap", "regarding.name": name})
	if err != nil {
		return nil, err
	}
	found := slices.Concat(aboutNode, aboutRecord)
	slices.SortStableFunc(found, func(a, b *eventsv1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	var all []Moment
	for _, event := range found {
		if strings.HasPrefix(event.ReportingController, reporter) && !lastSeen(event).IsZero() {
			all = append(all, momentOf(event))
		}
	}
	return all, nil
}

func momentOf(event *eventsv1.Event) Moment {
	text := event.Reason + ": " + strings.Join(strings.Fields(event.Note), " ")
	if count := countOf(event); count > 1 {
		text += fmt.Sprintf(" (at least %d times)", count)
	}
	m := Moment{At: timeOf(lastSeen(event).Truncate(time.Second)), Source: "Event", Text: text, Warning: event.Type == corev1.EventTypeWarning}
	if event.Regarding.Kind == "Node" {
		m.of = event.Regarding.UID
	}
	return m
}

// LabelReason is a label that differs between the Node and its record, and the reason.
type LabelReason struct {
	Key string `json:"key"`
	// Saved and Live are its values, nil if it is absent.
	Saved *string `json:"saved,omitempty"`
	Live  *string `json:"live,omitempty"`
	Why   string  `json:"why"`
}

// LabelReasons returns the labels, preserved annotations and preserved taints that differ between a
// live Node and its record, without withheld labels.
func (n *Node) LabelReasons(policy labels.Policy) []LabelReason {
	r := n.Saved.Record
	if n.Live == nil || r == nil {
		return nil
	}
	live := n.Live
	var goal map[string]string // of the pending restore, nil if none is pending
	for _, d := range n.Forecast(policy) {
		if d.Action == preserve.Restore {
			goal = d.Labels
		}
	}
	keys := labels.Differing(r.Labels, live.Labels)
	if goal != nil {
		keys = append(keys, labels.Differing(goal, live.Labels)...)
		slices.Sort(keys)
	}
	var all []LabelReason
	for _, key := range slices.Compact(keys) {
		reason := LabelReason{Key: key, Saved: labels.ValueOf(r.Labels, key), Live: labels.ValueOf(live.Labels, key)}
		reason.Why = whyDiffers(&reason, goal, policy, r.Machine.Has(key), live.Machine.Has(key))
		all = append(all, reason)
	}
	return all
}

// whyDiffers returns the reason why a label differs from its saved value. Goal has the labels of
// the pending restore. Was and is report whether only the agents of the former machine had set the
// label, and whether only agents of this machine have.
func whyDiffers(l *LabelReason, goal map[string]string, policy labels.Policy, was, is bool) string {
	after := labels.ValueOf(goal, l.Key)
	switch {
	case goal == nil && l.Saved == nil:
		return "set after the labels were saved, and not saved yet"
	case goal == nil && policy.Live.Match(l.Key):
		return "a live label: that of this machine counts"
	case goal == nil && is:
		return "the agents of this machine have set it"
	case goal == nil && was:
		return "only the agents of the former machine had set it: it is not restored"
	case goal == nil:
		return "changed after the labels were saved, and not saved yet"
	case l.Saved != nil && after != nil && *after == *l.Saved:
		return "the pending restore sets it"
	case l.Live != nil && after != nil && *after == *l.Live && is:
		return "the agents of this machine have set it: it stays"
	case l.Live != nil && after != nil && *after == *l.Live:
		return "it stays as the node has it"
	case after != nil:
		return "the pending transactions save it as " + *after + ", and restore that"
	case l.Saved == nil:
		return "it is not saved: the pending restore removes it"
	case was:
		return "only the agents of the former machine had set it: it is not restored"
	}
	return "the pending restore does not set it"
}
