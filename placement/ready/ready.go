package ready

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// The types of conditions.
const (
	Scheduled    = "Scheduled"
	Acknowledged = "Acknowledged"
	Ready        = "Ready"
)

// The reasons of conditions.
const (
	NotDecided = "NotDecided"

	Placed                       = "Placed"
	LimitedByMaxAllowedVReplicas = "LimitedByMaxAllowedVReplicas"
	InvalidReplicas              = "InvalidReplicas"
	ContractTooLarge             = "ContractTooLarge"
	NotEnoughCapacity            = "NotEnoughCapacity"

	PodLost         = "PodLost"
	HandingOver     = "HandingOver"
	NotAcknowledged = "NotAcknowledged"
	Stopping        = "Stopping"
	Failing         = "Failing"

	GenerationNotObserved = "GenerationNotObserved"
)

// Input is the state of one resource.
type Input struct {
	UID        types.UID
	Generation int64
	// Wanted is the number of virtual replicas to place; see [placement.Wanted].
	Wanted int32
	// Limited is set if more are desired than allowed, Invalid if the desired number is invalid.
	Limited, Invalid bool
	// TooLarge is set if an entry did not fit into a contract.
	TooLarge bool
	Status   placement.Status
	// Pods returns the pod of an incarnation. It returns false if the pod is unknown.
	Pods func(incarnation string) (Pod, bool)
	Now  time.Time
}

// Pod is the state of the pod of an incarnation.
type Pod struct {
	View *contract.View
	// Working is set if the incarnation renews its Lease. The readiness of the Pod does not matter:
	// the agent acknowledges what works.
	Working bool
	// Behind is since when the pod has not acknowledged its contract, or zero if unknown.
	Behind time.Time
}

// Of returns the conditions of a resource, without transition times, and the number of its virtual
// replicas that are being worked on.
func Of(in *Input) (conditions []metav1.Condition, working int32) {
	s := summarize(in)
	scheduled, acknowledged := s.scheduled(), s.acknowledged()
	whole := metav1.Condition{Type: Ready, Status: metav1.ConditionTrue, Reason: Ready}
	switch {
	case scheduled.Status == metav1.ConditionUnknown:
		whole.Status, whole.Reason = metav1.ConditionUnknown, NotDecided
	case in.Status.ObservedGeneration != in.Generation:
		whole.Status, whole.Reason = metav1.ConditionFalse, GenerationNotObserved
		whole.Message = fmt.Sprintf("generation %d of %d is observed", in.Status.ObservedGeneration, in.Generation)
	case scheduled.Status == metav1.ConditionFalse:
		whole.Status, whole.Reason, whole.Message = scheduled.Status, scheduled.Reason, scheduled.Message
	case acknowledged.Status == metav1.ConditionFalse:
		whole.Status, whole.Reason, whole.Message = acknowledged.Status, acknowledged.Reason, acknowledged.Message
	}
	conditions = []metav1.Condition{scheduled, acknowledged, whole}
	for i := range conditions {
		conditions[i].ObservedGeneration = in.Generation
	}
	return conditions, s.working
}

// summary is the evaluation of an input.
type summary struct {
	*Input
	homeless                         int32 // indexes without an owner
	working                          int32
	lost, behind, stopping, failures []string
	unreadable                       bool
}

func summarize(in *Input) *summary {
	s := &summary{Input: in}
	owned, total := map[int32]bool{}, 0
	for i := range in.Status.Placement {
		share := &in.Status.Placement[i]
		set, err := share.Set()
		if total += len(set); total > 2*placement.MaxReplicas { // an edited status must not stop the controller
			s.unreadable = true
			break
		}
		if err != nil {
			s.unreadable = true
			continue
		}
		if share.Incarnation == "" {
			continue
		}
		for _, index := range set.Below(in.Wanted) {
			owned[index] = true
		}
		pod, ok := in.Pods(share.Incarnation)
		if !ok || !pod.Working {
			s.lost = append(s.lost, share.PodName)
			continue
		}
		working := pod.View.Working(in.UID, share)
		s.check(share, pod, len(working) > 0 && len(working) == len(set))
		s.working += int32(len(working.Below(in.Wanted))) //nolint:gosec // at most Wanted
	}
	s.homeless = in.Wanted - int32(len(owned)) //nolint:gosec // at most Wanted
	return s
}

// check records why the share of a pod is not complete yet. If all of it is worked on, it is
// acknowledged.
func (s *summary) check(share *placement.Placement, pod Pod, works bool) {
	v := pod.View
	e := v.Contract.Entry(s.UID)
	switch {
	case !works && !v.Acknowledged(s.UID, share), e.Generation < s.Status.ObservedGeneration:
		text := fmt.Sprintf("%s at %d of %d", share.PodName, v.Ack.Generation, v.Contract.Generation)
		if !pod.Behind.IsZero() {
			text += fmt.Sprintf(" for %s", s.Now.Sub(pod.Behind).Truncate(time.Second))
		}
		s.behind = append(s.behind, text)
	case len(v.Ack.Stopping[s.UID]) > 0:
		s.stopping = append(s.stopping, fmt.Sprintf("%s still runs %s", share.PodName, v.Ack.Stopping[s.UID]))
	case v.Ack.Fails(s.UID):
		why, ok := v.Ack.Failing[s.UID]
		if !ok {
			why = v.Ack.Failing[contract.Everything]
		}
		s.failures = append(s.failures, share.PodName+": "+why)
	}
}

func (s *summary) scheduled() metav1.Condition {
	c := metav1.Condition{Type: Scheduled, Status: metav1.ConditionFalse}
	switch {
	case s.Invalid:
		c.Reason, c.Message = InvalidReplicas, "the desired number of vreplicas is invalid; the last decision is kept"
	case s.Status.ObservedGeneration == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, NotDecided
	case s.TooLarge:
		c.Reason, c.Message = ContractTooLarge, fmt.Sprintf("its entry does not fit into a contract of %d bytes", contract.MaxBytes)
	case s.homeless > 0:
		c.Reason, c.Message = NotEnoughCapacity, s.homelessText()
	case s.Limited:
		c.Status, c.Reason = metav1.ConditionTrue, LimitedByMaxAllowedVReplicas
	default:
		c.Status, c.Reason = metav1.ConditionTrue, Placed
	}
	return c
}

func (s *summary) acknowledged() metav1.Condition {
	c := metav1.Condition{Type: Acknowledged, Status: metav1.ConditionFalse}
	pods := len(s.Status.Placement)
	switch {
	case s.Status.ObservedGeneration == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, NotDecided
	case len(s.lost) > 0:
		c.Reason, c.Message = PodLost, some(s.lost, pods)
	case len(s.Status.Releasing) > 0:
		var names []string
		for i := range s.Status.Releasing {
			names = append(names, s.Status.Releasing[i].PodName+" releases "+s.Status.Releasing[i].Indexes)
		}
		c.Reason, c.Message = HandingOver, list(names)
	case s.unreadable:
		c.Reason, c.Message = NotAcknowledged, "the status has malformed indexes"
	case len(s.behind) > 0:
		c.Reason, c.Message = NotAcknowledged, some(s.behind, pods)
	case s.homeless > 0:
		c.Reason, c.Message = NotAcknowledged, s.homelessText()
	case len(s.stopping) > 0:
		c.Reason, c.Message = Stopping, some(s.stopping, pods)
	case len(s.failures) > 0:
		c.Reason, c.Message = Failing, some(s.failures, pods)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, Acknowledged
	}
	return c
}

func (s *summary) homelessText() string {
	return fmt.Sprintf("%d of %d vreplicas have no pod", s.homeless, s.Wanted)
}

func some(pods []string, of int) string {
	return fmt.Sprintf("%d of %d pods: %s", len(pods), of, list(pods))
}

// maxListed bounds the items listed in a message.
const maxListed = 3

// maxText bounds the length of such an item in bytes: it may come from an acknowledgement.
const maxText = 256

func list(texts []string) string {
	texts = slices.Clone(texts)
	for i := range texts[:min(len(texts), maxListed)] {
		if len(texts[i]) > maxText {
			texts[i] = strings.ToValidUTF8(texts[i][:maxText], "") + "…"
		}
	}
	text := strings.Join(texts[:min(len(texts), maxListed)], ", ")
	if more := len(texts) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Grace is how long Ready stays True during a hand-over or the restart of a pod.
const Grace = 10 * time.Second

// Hold returns the conditions to write, with transition times, given the stored conditions and the
// result of [Of]. Ready stays True for an unchanged generation until Acknowledged has been False
// for [Grace]. If wait is not zero, call Hold again after that time.
//
// The stored time may come from another controller, whose clock is ahead. Hold replaces a time
// after now by now, so that Ready stays True for Grace by the clock of this controller at most, if
// the next call gets these conditions.
func Hold(before, next []metav1.Condition, now time.Time) (conditions []metav1.Condition, wait time.Duration) {
	conditions = slices.Clone(before)
	for i := range next {
		c := next[i]
		c.LastTransitionTime = metav1.NewTime(now)
		former := meta.FindStatusCondition(before, c.Type)
		if c.Type == Ready && former != nil && former.Status == metav1.ConditionTrue && former.ObservedGeneration == c.ObservedGeneration && isPassing(c.Reason) {
			since := now
			if a := meta.FindStatusCondition(conditions, Acknowledged); a != nil && a.Status == metav1.ConditionFalse {
				if a.LastTransitionTime.After(now) {
					a.LastTransitionTime = metav1.NewTime(now)
				}
				since = a.LastTransitionTime.Time
			}
			if wait = since.Add(Grace).Sub(now); wait > 0 {
				continue
			}
			wait = 0
		}
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions, wait
}

// isPassing reports whether a reason may be due to a hand-over or a restart.
func isPassing(reason string) bool {
	return reason == PodLost || reason == HandingOver || reason == NotAcknowledged
}
