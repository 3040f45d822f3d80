package cli

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
)

// overtakenAfter is by how much longer than the transactions that the processors apply late, as a
// factor, others have waited that these have overtaken. The order of a queue is not strict.
const overtakenAfter = 2

// problem is a stuck object.
type problem struct {
	// Name is the name of a node, or of a ConfigMap in the transaction namespace.
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Advice string `json:"advice"`
}

// addPending adds the queue, and the nodes in it that are stuck. It returns the nodes that wait in
// line while the processors catch up.
func (s *status) addPending(pending []inspect.Pending, now time.Time, stuckAfter time.Duration) (inLine map[string]bool) {
	waiting, inLine := map[string]bool{}, map[string]bool{}
	s.Pending.Transactions = len(pending)
	late := s.lateness()
	s.Pending.CatchingUp = late > 0 && len(pending) > 0
	for _, t := range pending {
		if s.Pending.Oldest == nil || t.Created.Before(s.Pending.Oldest.Time) {
			s.Pending.Oldest, s.Pending.OldestNode = &metav1.Time{Time: t.Created}, t.Node
		}
		switch {
		case waiting[t.Node]:
		case s.Pending.CatchingUp && now.Sub(t.Created) <= stuckAfter+overtakenAfter*late:
			inLine[t.Node] = true
		case now.Sub(t.Created) > stuckAfter:
			s.Stuck = append(s.Stuck, problem{
				t.Node, "a transaction (" + string(t.Type) + ") has been pending for " + duration.HumanDuration(now.Sub(t.Created)),
				"see what it waits for: kubectl nodekeeper show " + t.Node,
			})
		}
		waiting[t.Node] = true
	}
	s.Pending.Nodes = len(waiting)
	return inLine
}

// lateness returns how late processors have just applied transactions at most, and zero if none was
// late.
func (s *status) lateness() (most time.Duration) {
	for _, r := range s.Replicas {
		if r.LateBy != nil {
			most = max(most, r.LateBy.Duration)
		}
	}
	return most
}

// addWaitingDeletions adds the nodes whose deletion waits for nodekeeper's finalizer.
func (s *status) addWaitingDeletions(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.DeletionWaitsSince; since != nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "its deletion has been waiting for " + duration.HumanDuration(now.Sub(since.Time)) + " for the finalizer " + nodes.Finalizer,
				"run a processor with --protect=finalizer, which removes it when the labels are saved, or remove it by hand",
			})
		}
	}
}

// addGated adds the nodes that keep the startup taint.
func (s *status) addGated(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.GatedSince; since != nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "it has been waiting for " + duration.HumanDuration(now.Sub(since.Time)) + " for its labels behind the taint " + nodeview.StartupTaintKey,
				"a processor removes it with the restore; without one: " + nodeview.OpenCommands(n.Name),
			})
		}
	}
}

// addUnfollowed adds the nodes whose record was replaced. What has the startup taint is
// reported as that.
func (s *status) addUnfollowed(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.UnfollowedSince; since != nil && n.GatedSince == nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "its record does not follow it: the record was replaced",
				"to save the labels of the node: kubectl nodekeeper save " + n.Name + "; to restore those of the record: kubectl nodekeeper restore " + n.Name,
			})
		}
	}
}

// addClosed adds the nodes that keep the startup taint because they do not have the marker.
func (s *status) addClosed(all []inspect.Closed, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if now.Sub(n.Since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "the taint " + nodeview.StartupTaintKey + " keeps pods away, and no processor removes it without the label " + labels.Marker + "=" + labels.Pending,
				"add that, and a processor removes the taint once the node has its labels: kubectl label node " + n.Name + " " + labels.Marker + "=" + labels.Pending + " --overwrite",
			})
		}
	}
}
