package ringview

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
)

// excluded completes the ownership of an object that does not belong to the ring.
func (q *question) excluded(o Ownership, why string) Ownership {
	o.State, o.Why = Excluded, why
	o.Agrees = o.Shard == nil && o.Drain == nil
	if !o.Agrees {
		o.Next = "the sharder removes the labels that are left"
		if !slices.Contains(q.ring.Status.LabelledResources, groupResource(q.mapping)) {
			o.Next = "nothing: the ring has never labelled this resource, or has removed its labels; another client has set these"
		}
	}
	return o
}

func (q *question) whyNotSelected() string {
	namespace := q.object.Namespace
	if namespace == "" {
		namespace = q.object.Name
	}
	if q.ring.Spec.NamespaceSelector == nil {
		return fmt.Sprintf("without spec.namespaceSelector, the ring leaves out namespace %s: kube-system and the namespace of the sharder do not belong to it", namespace)
	}
	return fmt.Sprintf("spec.namespaceSelector of the ring (%s) does not match the labels of namespace %s",
		metav1.FormatLabelSelector(q.ring.Spec.NamespaceSelector), namespace)
}

// isLive reports whether a shard may act on its objects, by the status of the ring.
func (q *question) isLive(shard string) bool {
	if t := q.ring.Status.Table; t != nil && slices.Contains(t.Shards, shard) {
		return true
	}
	return slices.ContainsFunc(q.ring.Status.Members, func(m v1alpha1.Member) bool {
		return m.Name == shard && m.State != "dead" && m.State != "orphaned"
	})
}

// stateOf returns the state of a shard.
func (q *question) stateOf(shard string) string {
	for _, m := range q.ring.Status.Members {
		if m.Name == shard {
			return m.State
		}
	}
	return "not a shard of the ring"
}

// explainMain sets the owner of a main object and the reason.
func (q *question) explainMain(o *Ownership, main v1alpha1.Resource) {
	shard, drain := text(o.Shard), text(o.Drain)
	d := q.decide(o, main)
	switch {
	case shard == "" && drain == "":
		o.State = Unassigned
		o.Why, o.Next = q.whyUnassigned(), q.next(d, main)
	case shard == "":
		o.State = Parked
		o.Why = "its shard has given it away, and no shard acts on it until the sharder has assigned it to " + drain
		o.Next = q.next(d, main)
	case !q.isLive(shard):
		o.State = Orphaned
		o.Why = fmt.Sprintf("shard %s is %s: it does not act on the object any more", shard, q.stateOf(shard))
		o.Next = q.next(d, main)
	default:
		o.Owner = shard
		q.explainHeld(o, d, main)
	}
	o.Agrees = shard != "" && shard == o.Table && o.Drain == nil
	if q.ring.DeletionTimestamp != nil {
		o.Next = "the ring is being deleted: the sharder removes its labels from all objects"
	}
}

// explainHeld explains why a live shard has an object.
func (q *question) explainHeld(o *Ownership, d handover.Decision, main v1alpha1.Resource) {
	shard, drain := text(o.Shard), text(o.Drain)
	by := fmt.Sprintf("the table has slot %d at %s", *o.Slot, o.Table)
	o.Next = q.next(d, main)
	switch {
	case o.Table == "":
		o.State, o.Why = Assigned, "the table has no shard: the object stays where it is"
	case drain != "":
		o.State = Draining
		o.Why = fmt.Sprintf("%s is asked to give it to %s, and may act on it until it has done so; %s", shard, drain, by)
	case shard == o.Table && o.TableNext == "":
		o.State, o.Why = Assigned, by
	case shard == o.Table:
		o.State = Assigned
		o.Why = fmt.Sprintf("%s; %s is silent (%s): it keeps the object, and new objects of the slot go to %s by table.next", by, shard, q.stateOf(shard), o.TableNext)
		o.Next = fmt.Sprintf("if %s is found dead, the sharder assigns the object to %s", shard, o.TableNext)
	case shard == o.TableNext:
		o.State = Assigned
		o.Why = fmt.Sprintf("%s, which is silent (%s): new objects of the slot go to %s by table.next", by, q.stateOf(o.Table), shard)
		o.Next = fmt.Sprintf("if %s returns, the object moves to it", o.Table)
	default:
		o.State = Misplaced
		o.Why = fmt.Sprintf("%s: the shards have changed since the object came to %s", by, shard)
	}
}

// decide returns the decision of the sharder about a main object, as far as the cluster shows its
// input.
func (q *question) decide(o *Ownership, main v1alpha1.Resource) handover.Decision {
	spec := q.ring.Spec.Handover
	object := handover.Object{Shard: text(o.Shard), Drain: text(o.Drain), ChildrenMoved: len(main.ControlledResources) == 0}
	if o.DrainedAt != nil {
		object.DrainedFor = time.Since(o.DrainedAt.Time)
	}
	rules := handover.Ring{
		Live: q.isLive, Silent: func(shard string) bool { return q.table.Silent[shard] },
		Force: place.MayForce(q.ring, main), IsFull: q.ring.Status.Moving >= spec.MaxConcurrentMoves && spec.MaxConcurrentMoves > 0,
	}
	if spec.DrainTimeout != nil {
		rules.DrainTimeout = spec.DrainTimeout.Duration
	}
	return handover.Decide(object, q.table.Of(o.Key), rules)
}

// next describes the next action of the sharder.
func (q *question) next(d handover.Decision, main v1alpha1.Resource) string {
	switch d.Action {
	case handover.Assign:
		if d.Why == handover.Forced {
			return fmt.Sprintf("the drain timeout has passed: the sharder assigns the object to %s although its shard has not given it away", d.Shard)
		}
		return "the sharder assigns it to " + d.Shard
	case handover.Park:
		if d.Why == handover.Forced {
			return "the drain timeout has passed: the sharder takes the object from its shard, moves its children, and then assigns it to " + d.Shard
		}
		return "the sharder parks it, moves its children, and then assigns it to " + d.Shard
	case handover.MoveChildren:
		return "the sharder moves its children, and then assigns it to " + d.Shard
	case handover.Drain:
		return "the sharder sets the label drain to " + d.Shard
	case handover.Undrain:
		return "the sharder removes the label drain: the object stays where it is"
	case handover.Wait:
		return q.nextOfWait(d, main)
	case handover.Keep:
	}
	if q.ring.Status.Table == nil || len(q.table.Now) == 0 {
		return "nothing until the ring has a shard"
	}
	return ""
}

func (q *question) nextOfWait(d handover.Decision, main v1alpha1.Resource) string {
	timeout := time.Duration(0)
	if given := q.ring.Spec.Handover.DrainTimeout; given != nil {
		timeout = given.Duration
	}
	switch {
	case d.IsLate && q.ring.Spec.Handover.OnTimeout == v1alpha1.Force:
		return fmt.Sprintf("nothing: the shard has not given it away within spec.handover.drainTimeout (%s), and onTimeout Force waits, because %s", timeout, place.WhyForceWaits(main))
	case d.IsLate:
		return fmt.Sprintf("nothing: the shard has not given it away within spec.handover.drainTimeout (%s), and spec.handover.onTimeout is Wait: look at its log", timeout)
	case d.After > 0:
		return fmt.Sprintf("the shard removes the label shard; if that takes longer than %s, the condition Balanced has the reason DrainTimeout", timeout)
	}
	return fmt.Sprintf("it waits: %d objects are in a hand-over, and spec.handover.maxConcurrentMoves is %d", q.ring.Status.Moving, q.ring.Spec.Handover.MaxConcurrentMoves)
}

// whyUnassigned explains why a main object has no label of the ring.
func (q *question) whyUnassigned() string {
	if len(q.table.Now) == 0 {
		return "the ring has no shard"
	}
	if !slices.Contains(q.ring.Status.LabelledResources, groupResource(q.mapping)) {
		return "the sharder has not noted in status.labelledResources yet that it labels this resource"
	}
	const installed = "AdmissionInstalled"
	if c := meta.FindStatusCondition(q.ring.Status.Conditions, installed); c == nil || c.Status != metav1.ConditionTrue {
		reason := "not reported"
		if c != nil {
			reason = c.Reason
		}
		return fmt.Sprintf("neither a policy nor a webhook assigns new objects (%s: %s), so the sharder does it when it sees them", installed, reason)
	}
	return "neither a policy nor a webhook has assigned it when it was created: it is older than these, its name was generated, no webhook answered in time, or the ring had no shard then"
}

// explainChild sets the owner of an object of a controlled resource and the reason.
func (q *question) explainChild(o *Ownership) {
	shard, main := text(o.Shard), o.Main
	name := main.Resource + "/" + main.Name
	if q.isLive(shard) {
		o.Owner = shard
	}
	o.Agrees = shard != "" && shard == main.Shard && o.Drain == nil && q.isLive(shard)
	switch {
	case main.IsGone:
		o.State, o.Why = Orphaned, name+", which controls it, is gone"
		o.Next = "the garbage collector of Kubernetes deletes it"
		if q.isLive(shard) {
			o.State = Assigned
		}
		return
	case shard == "":
		o.State, o.Why = Unassigned, fmt.Sprintf("it follows %s, which is at %s", name, orNone(main.Shard))
	case !q.isLive(shard):
		o.State, o.Why = Orphaned, fmt.Sprintf("shard %s is %s; it follows %s, which is at %s", shard, q.stateOf(shard), name, orNone(main.Shard))
	case shard == main.Shard && main.Drain != "":
		o.State = Assigned
		o.Why = fmt.Sprintf("it follows %s, which is at %s and is asked to move to %s", name, shard, main.Drain)
	case shard == main.Shard:
		o.State, o.Why = Assigned, fmt.Sprintf("it follows %s, which is at %s", name, shard)
	case main.Shard == "" && shard == main.Drain:
		o.State = Assigned
		o.Why = fmt.Sprintf("it has moved before %s, which is parked and goes to %s", name, shard)
	default:
		o.State, o.Why = Misplaced, fmt.Sprintf("it follows %s, which is at %s", name, orNone(main.Shard))
	}
	o.Next = q.nextOfChild(o)
}

// nextOfChild describes the next action of the sharder for an object of a controlled resource.
func (q *question) nextOfChild(o *Ownership) string {
	main, shard := o.Main, text(o.Shard)
	switch {
	case main.Shard == "" && main.Drain == "":
		return "the sharder assigns " + main.Resource + "/" + main.Name + ", and then this"
	case main.Shard == "" && shard == main.Drain:
		return fmt.Sprintf("the sharder assigns %s/%s to %s", main.Resource, main.Name, main.Drain)
	case main.Shard == "", main.Drain != "" && shard == main.Shard:
		return fmt.Sprintf("when its shard has given %s/%s away, the sharder moves this first, to %s", main.Resource, main.Name, main.Drain)
	case !q.isLive(main.Shard):
		return fmt.Sprintf("the sharder moves this before %s/%s", main.Resource, main.Name)
	case shard != main.Shard:
		return "the sharder assigns it to " + main.Shard
	case o.Drain != nil:
		return "the sharder removes the label drain, which belongs on main objects"
	}
	return ""
}

func orNone(shard string) string {
	if shard == "" {
		return "no shard"
	}
	return shard
}

// text returns the value of a label, or "" if it is missing.
func text(label *string) string {
	if label == nil {
		return ""
	}
	return *label
}
