package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
)

// The reasons of events that are no reasons of conditions.
const (
	eventMoved         = "Moved"
	eventStatusPruned  = "StatusPruned"
	eventForeignObject = "ForeignObject"
)

const (
	// notAcknowledgedAfter is the time after which an unacknowledged resource gets an event.
	notAcknowledgedAfter = 30 * time.Second
	// eventsPerSecond and eventBurst bound the events about normal or transient states, so that a
	// pool that starts with thousands of resources, or rolls, does not write an event for each.
	eventsPerSecond, eventBurst = 5, 50
)

// reporter writes events. The zero value writes none.
type reporter struct {
	recorder record.EventRecorder
	limit    flowcontrol.PassiveRateLimiter
}

// newReporter returns a reporter that writes until ctx ends.
func newReporter(ctx context.Context, events corev1client.EventsGetter) *reporter {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: events.Events("")})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &reporter{
		recorder: broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "placement-controller"}),
		limit:    flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventBurst),
	}
}

// warn writes an event about something that needs attention.
func (r *reporter) warn(about *corev1.ObjectReference, reason, message string) {
	if r.recorder != nil {
		r.recorder.Event(about, corev1.EventTypeWarning, reason, message)
	}
}

// note writes an event about a normal or transient state, unless there are too many.
func (r *reporter) note(about *corev1.ObjectReference, eventType, reason, message string) {
	if r.recorder != nil && r.limit.TryAccept() {
		r.recorder.Event(about, eventType, reason, message)
	}
}

// about returns a reference to a resource.
func (r *resource) about() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: r.placed.APIVersion, Kind: r.placed.Kind, Namespace: r.placed.Namespace, Name: r.placed.Name,
		UID: r.placed.UID, ResourceVersion: r.resourceVersion,
	}
}

// aboutConfigMap and aboutLease return references to objects of a pod.
func aboutConfigMap(o metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
}

func aboutLease(o metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
}

// announce writes the events of statuses that were written.
func (p *pass) announce(written []change) {
	for i := range written {
		p.announceOne(&written[i])
	}
}

func (p *pass) announceOne(c *change) {
	r := c.version.parsed
	if order, counts := p.countMoves(c); len(order) > 0 {
		if text := describeMoves(order, counts); text != "" {
			p.events.note(r.about(), corev1.EventTypeNormal, eventMoved, text)
		}
	}
	before, after := reasons(r.status.Conditions), reasons(c.status.Conditions)
	scheduled, acknowledged := after[ready.Scheduled], after[ready.Acknowledged]
	if scheduled.Reason != before[ready.Scheduled].Reason {
		switch scheduled.Reason {
		case ready.NotEnoughCapacity, ready.ContractTooLarge:
			p.events.warn(r.about(), scheduled.Reason, scheduled.Message)
		case ready.Placed, ready.LimitedByMaxAllowedVReplicas:
			p.events.note(r.about(), corev1.EventTypeNormal, ready.Placed, fmt.Sprintf("%d vreplicas on %d pods", r.wanted, len(c.status.Placement)))
		}
	}
	if acknowledged.Reason == ready.PodLost && before[ready.Acknowledged].Reason != ready.PodLost {
		p.events.note(r.about(), corev1.EventTypeWarning, ready.PodLost, acknowledged.Message)
	}
}

func reasons(conditions []metav1.Condition) map[string]metav1.Condition {
	all := map[string]metav1.Condition{}
	for i := range conditions {
		all[conditions[i].Type] = conditions[i]
	}
	return all
}

// compareMoves orders moves by pods.
func compareMoves(a, b move) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.reason, b.reason))
}

// maxMoves bounds the moves in an event.
const maxMoves = 5

// describeMoves returns the message of an event, or nothing if all are new.
func describeMoves(order []move, counts map[move]int) string {
	var parts []string
	for _, m := range order {
		if m.reason != isNew {
			parts = append(parts, fmt.Sprintf("%d from %s to %s (%s)", counts[m], m.from, m.to, m.reason))
		}
	}
	if more := len(parts) - maxMoves; more > 0 {
		parts = append(parts[:maxMoves], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// lateness is the history of a resource that is not acknowledged. The condition does not contain
// its beginning: it may have been False before for another reason, and not every kind stores it.
type lateness struct {
	since     time.Time
	announced bool
}

// announceLate writes an event once a resource was not acknowledged for a while.
func (p *pass) announceLate(v *version[*resource], conditions []metav1.Condition) {
	a := meta.FindStatusCondition(conditions, ready.Acknowledged)
	if a == nil || a.Reason != ready.NotAcknowledged {
		delete(p.late, v.uid)
		return
	}
	late := p.late[v.uid]
	if late == nil {
		late = &lateness{since: p.now}
		p.late[v.uid] = late
	}
	if !late.announced && p.isDue(late.since, notAcknowledgedAfter) {
		late.announced = true
		p.events.note(v.parsed.about(), corev1.EventTypeWarning, ready.NotAcknowledged, a.Message)
	}
}

// missingField returns the first field of a status that the API server has not stored, or "".
func missingField(stored, written *placement.Status) string {
	switch {
	case stored.Decision != written.Decision:
		return "decision"
	case !isSameShares(stored.Placement, written.Placement):
		return "placements"
	case !isSameShares(stored.Releasing, written.Releasing):
		return "releasing"
	case stored.ObservedGeneration != written.ObservedGeneration:
		return observedField
	case stored.ReadyVReplicas != written.ReadyVReplicas:
		return workingField
	case !isSameVerdict(stored, written), !isSameDetail(stored, written):
		return conditionsField
	}
	return ""
}

// foreignObject notes that an object with the name of a pod does not belong to the pool.
func (p *pass) foreignObject(about *corev1.ObjectReference) {
	p.events.warn(about, eventForeignObject, fmt.Sprintf("it has the name of a pod of the pool %s, but not the label %s=%s: it stays as it is", p.Name, contract.PoolLabel, p.Name))
}
