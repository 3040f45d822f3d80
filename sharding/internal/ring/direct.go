package ring

import (
	"slices"
	"time"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// handoverOf returns the value of the handover label on the Leases of a ring, or "" for no label.
func handoverOf(ring *v1alpha1.ClusterRing) string {
	if isDirect(ring) {
		return v1alpha1.HandoverDirect
	}
	return ""
}

// isDirect reports whether the shards of a ring may complete hand-overs themselves, because the
// ring labels no children and has labelled none. Shards of another project do not support this.
func isDirect(ring *v1alpha1.ClusterRing) bool {
	all := append(Resources(&ring.Spec), ring.Status.LabelledResources...)
	return !isAnywhere(ring) && !slices.ContainsFunc(all, func(r v1alpha1.GroupResource) bool { return !isMain(ring, r) })
}

func isMain(ring *v1alpha1.ClusterRing, r v1alpha1.GroupResource) bool {
	return slices.ContainsFunc(ring.Spec.Resources, func(main v1alpha1.Resource) bool { return main.GroupResource == r })
}

// unlabelled returns the controlled resources of a ring whose objects have no labels yet.
func unlabelled(ring *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	return slices.DeleteFunc(Resources(&ring.Spec), func(r v1alpha1.GroupResource) bool {
		return isMain(ring, r) || slices.Contains(ring.Status.LabelledResources, r)
	})
}

// heldBack returns the controlled resources whose objects must not be labelled yet. A shard that
// does not know yet that objects have children could release an object without them.
func (c *Controller) heldBack(ring *v1alpha1.ClusterRing, shards []Shard, now time.Time) []v1alpha1.GroupResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := unlabelled(ring)
	if len(waiting) == 0 {
		delete(c.direct, ring.Name)
		return nil
	}
	key := c.Observer.PrefixOf(ring).HandoverLabel()
	direct := slices.ContainsFunc(shards, func(s Shard) bool {
		return s.State.Live() && s.Lease != nil && s.Lease.Labels[key] == v1alpha1.HandoverDirect
	})
	last, ok := c.direct[ring.Name]
	if direct || !ok && len(ring.Status.LabelledResources) > 0 { // another leader may have set the label just before
		last, ok = now, true
		c.direct[ring.Name] = now
	}
	if !ok {
		return nil
	}
	if unaware, listed := c.Observer.Unaware(ring.Name, last); listed && len(unaware) == 0 {
		return nil
	}
	return waiting
}
