package ring

import (
	"slices"
	"time"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// handoverOf returns what the Leases of a ring say about how its shards give objects away, "" for
// nothing.
func handoverOf(ring *v1alpha1.ClusterRing) string {
	if isDirect(ring) {
		return v1alpha1.HandoverDirect
	}
	return ""
}

// isDirect reports whether the shards of a ring may complete hand-overs themselves: no object has
// children that the ring labels, or has labelled. Shards of another project know nothing of that.
func isDirect(ring *v1alpha1.ClusterRing) bool {
	all := append(Resources(&ring.Spec), ring.Status.LabelledResources...)
	return !isAnywhere(ring) && !slices.ContainsFunc(all, func(r v1alpha1.GroupResource) bool { return !isMain(ring, r) })
}

func isMain(ring *v1alpha1.ClusterRing, r v1alpha1.GroupResource) bool {
	return slices.ContainsFunc(ring.Spec.Resources, func(main v1alpha1.Resource) bool { return main.GroupResource == r })
}

// unlabelled returns the resources that a ring controls and whose objects have no labels yet.
func unlabelled(ring *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	return slices.DeleteFunc(Resources(&ring.Spec), func(r v1alpha1.GroupResource) bool {
		return isMain(ring, r) || slices.Contains(ring.Status.LabelledResources, r)
	})
}

// heldBack returns the resources whose objects must not be labelled yet, although the ring controls
// them: a shard may not have heard that objects have children, and give one away without them.
func (c *Controller) heldBack(ring *v1alpha1.ClusterRing, shards []Shard, now time.Time) []v1alpha1.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := unlabelled(ring)
	if len(waiting) == 0 {
		delete(c.direct, ring.Name)
		return nil
	}
	key := c.Observer.PrefixOf(ring).HandoverLabel()
	isDirect := slices.ContainsFunc(shards, func(s Shard) bool {
		return s.State.Live() && s.Lease != nil && s.Lease.Labels[key] == v1alpha1.HandoverDirect
	})
	last, isKnown := c.direct[ring.Name]
	if isDirect || !isKnown && len(ring.Status.LabelledResources) > 0 { // another leader may have told them just now
		last, isKnown = now, true
		c.direct[ring.Name] = now
	}
	if !isKnown {
		return nil
	}
	if unaware, isListed := c.Observer.Unaware(ring.Name, last); isListed && len(unaware) == 0 {
		return nil
	}
	return waiting
}
