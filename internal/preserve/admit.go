package preserve

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
)

// Admission is the change to a Node in the request that creates it.
type Admission struct {
	// Labels are all labels that the Node has afterwards, without the marker.
	Labels map[string]string
	// Marker is the marker that the Node gets: the revision of the record if the Node has
	// everything that a restore would give it, [labels.Pending] if it must wait behind the startup
	// taint, and empty if the request stays as it is.
	Marker string
	// Held are the keys that the request does not set as a restore would. The processors decide
	// about them later.
	Held labels.Keys
	// Reason is a constant text for logs and users.
	Reason string
}

// Gated reports whether the Node gets the startup taint.
func (a Admission) Gated() bool { return a.Marker == labels.Pending }

// Restores reports whether the Node gets a marker. If not, the request stays as it is.
func (a Admission) Restores() bool { return a.Marker != "" }

// Request is a request to create a Node.
type Request struct {
	// Node is the Node as requested. It has no UID and no revision.
	Node nodeview.Node
	// Kubelet reports whether a kubelet creates the Node. The API server then rejects labels that a
	// kubelet may not set, see [labels.KubeletMaySet].
	Kubelet bool
	// HeldBack are the keys of labels and annotations that the processors must add later, whoever
	// creates the Node, because an admission policy of the cluster would reject the request.
	HeldBack labels.Patterns
	// Gate reports whether every Node that has a record gets the startup taint.
	Gate bool
}

// Admit decides about a request to create a Node, given its record, nil if none exists. The record
// may be stale: the marker names its revision, and [Decide] compares that with the current record
// when the Added transaction of the Node is applied. Admit holds back the labels of a machine unless
// the Node reports that it is that machine, because a restore must store that decision first.
func Admit(r *record.Record, req Request, policy labels.Policy) Admission {
	n := req.Node
	switch {
	case r == nil || r.Floor:
		return Admission{Labels: n.Labels, Reason: "no labels are saved for this node"}
	case n.Unselected:
		return Admission{Labels: n.Labels, Reason: "this node is not selected"}
	}
	own, held := admitted(*r, req, policy)
	a := Admission{Labels: own, Marker: r.Revision.String(), Held: held, Reason: "the node returned"}
	if held != "" || req.Gate || n.Gated {
		a.Marker = labels.Pending
	}
	return a
}

// admitted returns the labels that a Node gets at creation, and the keys that it must get later.
func admitted(r record.Record, req Request, policy labels.Policy) (own map[string]string, held labels.Keys) {
	saved := Saved(r)
	for _, w := range ByMode(r.Withheld, policy) {
		switch checkWithheld(w, &req.Node, policy) {
		case OtherMachine, UnknownMachine: // the Node gets none of these
		case granted, Waiting, Dropped, NoRoom:
			held = held.Union(labels.KeysOf(maps.Keys(w.Labels)))
		}
	}
	if waiting := withheldFrom(r, &req.Node, policy); len(waiting) > 0 {
		held = held.Union(labels.KeysOf(maps.Keys(waiting)))
		saved.Labels = maps.Clone(saved.Labels)
		maps.DeleteFunc(saved.Labels, func(key, _ string) bool { _, isHeld := waiting[key]; return isHeld })
		saved.Withheld = saved.Withheld.Union(labels.KeysOf(maps.Keys(waiting))) // keep the requested values
	}
	// Processors with other flags may restore keys that this policy omits. If the Node had the
	// record's marker, they would take the missing keys for removed.
	unknown := func(yield func(string) bool) {
		for key := range saved.Labels {
			if (!policy.Has(key) || policy.Ignored.Match(key)) && !yield(key) {
				return
			}
		}
	}
	held = held.Union(labels.KeysOf(unknown))
	came := sideOfNode(&req.Node)
	own = policy.Restored(came, saved)
	later := changed(req.Node.Labels, own, func(key string, isWanted bool) bool {
		return labels.IsTaint(key) || mayStay(came, key, policy) || isWanted && req.refuses(key)
	})
	for key := range later.All() {
		delete(own, key)
		if requested, isRequested := req.Node.Labels[key]; isRequested {
			own[key] = requested
		}
	}
	return own, held.Union(later)
}

// mayStay reports whether a Node was created with a key that a restore from another record may
// leave alone. If the webhook replaced its value using a stale record, the Node's own value would
// be lost. In mode replace, this excludes users' labels that the other record attributes to the
// former machine, because including them would gate most Nodes that users create.
func mayStay(came labels.Side, key string, policy labels.Policy) bool {
	if _, isThere := came.Labels[key]; !isThere {
		return false
	}
	return policy.Mode == labels.Merge || !labels.IsLabel(key) || came.Machine.Has(key) || came.Unclear.Has(key)
}

// refuses reports whether the API server would reject the request with this label or annotation.
func (r *Request) refuses(key string) bool {
	annotation, isAnnotation := labels.AsAnnotation(key)
	if isAnnotation {
		return r.HeldBack.Match(annotation)
	}
	return r.Kubelet && !labels.KubeletMaySet(key) || r.HeldBack.Match(key)
}

// changed returns the keys that differ between the requested and the wanted labels although they
// must not: keys that the request may not set, keys that may stay as they are, and taints. Nothing
// records later which taints the webhook has set.
func changed(requested, wanted map[string]string, mustNot func(key string, isWanted bool) bool) labels.Keys {
	return labels.KeysOf(func(yield func(string) bool) {
		for key, value := range wanted {
			if before, isThere := requested[key]; mustNot(key, true) && (!isThere || before != value) && !yield(key) {
				return
			}
		}
		for key := range requested {
			if _, isWanted := wanted[key]; !isWanted && mustNot(key, false) && !yield(key) {
				return
			}
		}
	})
}
