package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/txn"
)

// refreshPeriod bounds the age of a series of events: after the second occurrence, client-go
// updates it only every 30 minutes (refreshTime in k8s.io/client-go/tools/events).
const refreshPeriod = 30 * time.Minute

// Warning combines the Warning events of one reason, as each processor writes its own.
type Warning struct {
	Reason string `json:"reason"`
	// Note is the text of the last event.
	Note string `json:"note"`
	// Count is a lower bound of the occurrences, and LastSeen the time of the last known one.
	Count    int32        `json:"count"`
	LastSeen *metav1.Time `json:"lastSeen"`
}

// lastWarning returns the last Warning event that explains why the transactions of a node are not
// applied, or nil.
func (c *Cluster) lastWarning(ctx context.Context, n *Node) (*Warning, error) {
	aboutNode, err := c.warnings(ctx, metav1.NamespaceDefault, "Node", n.Name) // where client-go writes events about cluster-scoped objects
	if err != nil {
		return nil, err
	}
	aboutRecord, err := c.warnings(ctx, c.MetadataNamespace, "ConfigMap", n.Name)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(aboutNode, aboutRecord)
	return lastOf(slices.DeleteFunc(all, func(event *eventsv1.Event) bool { return !n.waitsBecauseOf(event) })), nil
}

// waitsBecauseOf reports whether an event explains why the pending transactions are not applied,
// rather than earlier ones. Events with other reasons report lost labels, for which no transaction
// waits.
func (n *Node) waitsBecauseOf(event *eventsv1.Event) bool {
	switch event.Reason {
	case reasons.LabelsRestoreFailed:
		return isRecent(event, n.Pending) && slices.ContainsFunc(n.Pending, func(t Pending) bool {
			return t.Type == txn.Added && t.UID == event.Regarding.UID
		})
	case reasons.DeletionWaits:
		return n.Live != nil && n.Live.IsDeleting() && n.Live.UID == event.Regarding.UID
	case reasons.RecordUnreadable:
		return n.Saved.Unreadable != nil && n.Saved.Object.UID == event.Regarding.UID
	}
	return false
}

// warnings returns the Warning events in a namespace about an object.
func (c *Cluster) warnings(ctx context.Context, namespace, kind, name string) ([]*eventsv1.Event, error) {
	return c.events(ctx, namespace, client.MatchingFields{"type": corev1.EventTypeWarning, "regarding.kind": kind, "regarding.name": name})
}

// events returns the events in a namespace that have these fields.
func (c *Cluster) events(ctx context.Context, namespace string, fields client.MatchingFields) ([]*eventsv1.Event, error) {
	var all []*eventsv1.Event
	err := pages.Each(ctx, c.Client, func() client.ObjectList { return &eventsv1.EventList{} }, namespace,
		func(event *eventsv1.Event) error {
			all = append(all, event)
			return nil
		}, fields)
	if err != nil {
		return nil, fmt.Errorf("listing the events in namespace %q: %w", namespace, err)
	}
	return all, nil
}

// lastOf returns the last event, with the total count of its reason.
func lastOf(all []*eventsv1.Event) *Warning {
	counts := map[string]int32{}
	var last *eventsv1.Event
	for _, event := range all {
		counts[event.Reason] += countOf(event)
		if last == nil || lastSeen(event).After(lastSeen(last)) {
			last = event
		}
	}
	if last == nil {
		return nil
	}
	return &Warning{Reason: last.Reason, Note: last.Note, Count: counts[last.Reason], LastSeen: timeOf(lastSeen(last))}
}

// isRecent reports whether an event may have occurred since the first transaction was recorded.
func isRecent(event *eventsv1.Event, pending []Pending) bool {
	last := lastSeen(event)
	if event.Series != nil {
		last = last.Add(refreshPeriod)
	}
	for _, t := range pending {
		if !last.Before(t.Created) {
			return true
		}
	}
	return false
}

func countOf(event *eventsv1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	return max(1, event.DeprecatedCount)
}

func lastSeen(event *eventsv1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case event.EventTime.IsZero(): // written by the API before events.k8s.io
		return event.DeprecatedLastTimestamp.Time
	}
	return event.EventTime.Time
}
