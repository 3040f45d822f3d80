package ring

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// The types of conditions that this package sets or reads, and their reasons.
const (
	conditionReady          = "Ready"
	conditionShardsAccepted = "ShardsAccepted"
	// conditionAdmissionInstalled is reported by package policy.
	conditionAdmissionInstalled = "AdmissionInstalled"

	installFailed    = "InstallFailed"
	admissionMissing = "AdmissionMissing"
	reconciled       = "Reconciled"
	resourceNotFound = "ResourceNotFound"
	noAvailableShard = "NoAvailableShard"
	noPermission     = "NoPermission"
	invalidSpec      = "InvalidSpec"
	accepted         = "Accepted"
)

// MovesFailing is the reason of condition Balanced, and of an event, if writes to objects fail.
// Package assignment reports it.
const MovesFailing = "MovesFailing"

// maxNamed is the number of rejected Leases or missing resources that a condition lists.
const maxNamed = 5

// statusOf returns the status of a ring, derived from the state of its shards and the reports about
// it.
func statusOf(ring *v1alpha1.ClusterRing, shards []Shard, rejected []Rejected, table *v1alpha1.Table, report Report) *v1alpha1.ClusterRingStatus {
	s := ring.Status.DeepCopy()
	s.ObservedGeneration, s.Table, s.Members = ring.Generation, table, nil
	s.Shards, s.AvailableShards = int32(len(shards)), 0 //nolint:gosec // 256 at most
	s.LabelledResources = labelled(ring)
	has := assigned(table)
	for _, shard := range shards {
		member := v1alpha1.Member{Name: shard.Name, State: string(shard.State), Slots: int32(has.Share(shard.Name))} //nolint:gosec // 1,024 at most
		s.Members = append(s.Members, member)
		if shard.State == Ready || shard.State.Silent() {
			s.AvailableShards++
		}
	}
	report.complete(ring, s)
	ready := readiness(ring, s, len(has.Shards) > 0, report.Missing)
	for _, condition := range []metav1.Condition{ready, acceptance(rejected)} {
		condition.ObservedGeneration = ring.Generation
		meta.SetStatusCondition(&s.Conditions, condition)
	}
	return s
}

// readiness returns the Ready condition.
func readiness(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus, hasShards bool, missing []string) metav1.Condition {
	c := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse}
	switch {
	case !hasShards:
		c.Reason = noAvailableShard
		c.Message = fmt.Sprintf("no Lease in %s with the label of this ring is held by its shard, so objects are not assigned", where(ring))
	case len(missing) > 0:
		c.Reason = resourceNotFound
		c.Message = fmt.Sprintf("the API server does not serve %d resources: create their definitions, or remove them from the ring: %s",
			len(missing), strings.Join(missing[:min(len(missing), maxNamed)], ", "))
	case isFalse(s, conditionAdmissionInstalled, installFailed):
		c.Reason = admissionMissing
		c.Message = "new objects are not assigned when they are created: see condition " + conditionAdmissionInstalled
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reconciled, "every slot has a shard"
	}
	c.Message += unfenced(ring, s)
	return c
}

// unfenced returns what users of a ring with fence Deny must know while it does not work.
func unfenced(ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) string {
	switch {
	case ring.Spec.Fence != v1alpha1.FenceDeny || place.IsFenced(ring, s):
		return ""
	case ring.Spec.Handover.OnTimeout == v1alpha1.Force:
		return "; onTimeout Force waits for the fence: see condition " + place.FenceInstalled
	}
	return "; fence Deny refuses nothing yet: see condition " + place.FenceInstalled
}

// labelled returns the resources whose objects may have sharding labels: the resources in the spec
// and the ones that were in it before. Objects are labelled only after this list is stored, so that
// all labels can be removed later.
func labelled(ring *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	all := slices.Clone(ring.Status.LabelledResources)
	for _, r := range Resources(&ring.Spec) {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// Resources returns the main and controlled resources of a ring without duplicates.
func Resources(spec *v1alpha1.ClusterRingSpec) (all []v1alpha1.GroupResource) {
	for _, main := range spec.Resources {
		for _, r := range append([]v1alpha1.GroupResource{main.GroupResource}, main.ControlledResources...) {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}

// unlisted returns the status of a ring whose Leases cannot be listed.
func unlisted(ring *v1alpha1.ClusterRing) *v1alpha1.ClusterRingStatus {
	s := ring.Status.DeepCopy()
	s.ObservedGeneration = ring.Generation
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionFalse, Reason: noPermission, ObservedGeneration: ring.Generation,
		Message: fmt.Sprintf("listing the Leases in %s failed: allow the sharder to list and watch leases.coordination.k8s.io there, and see its log", where(ring)),
	})
	return s
}

// where describes the namespaces of the shards of a ring.
func where(ring *v1alpha1.ClusterRing) string {
	if isAnywhere(ring) {
		return "any namespace"
	}
	return "namespace " + ring.Spec.Shards.Namespace
}

// ignored returns the status of a ring that this sharder does not support. It keeps the table
// because policies may use it.
func ignored(ring *v1alpha1.ClusterRing) *v1alpha1.ClusterRingStatus {
	s := ring.Status.DeepCopy()
	s.ObservedGeneration = ring.Generation
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionFalse, Reason: invalidSpec, ObservedGeneration: ring.Generation,
		Message: "this ring is ignored: create another ring that names the namespace of the shards, or start the sharder with --compat=timebertt if they are shards of timebertt/kubernetes-controller-sharding",
	})
	return s
}

func acceptance(rejected []Rejected) metav1.Condition {
	c := metav1.Condition{Type: conditionShardsAccepted, Status: metav1.ConditionTrue, Reason: accepted, Message: "every Lease of this ring counts"}
	if len(rejected) == 0 {
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, rejected[0].Reason
	var named []string
	for _, r := range rejected[:min(len(rejected), maxNamed)] {
		named = append(named, fmt.Sprintf("%s: %s", r.Name, r.Message))
	}
	c.Message = fmt.Sprintf("%d Leases are not accepted: %s", len(rejected), strings.Join(named, "; "))
	return c
}

// isFalse reports whether a condition of a status is false for the given reason.
func isFalse(s *v1alpha1.ClusterRingStatus, condition, reason string) bool {
	c := meta.FindStatusCondition(s.Conditions, condition)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}
