package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// createContracts creates the empty ConfigMaps of pods that have none. It comes before decisions
// are written, so that these are later than what was observed of the contracts.
func (p *pass) createContracts(ctx context.Context) {
	var pods []string
	for pod, v := range p.members {
		if v.parsed.holder != "" && p.contracts[pod] == nil && p.mayTry("create "+pod, "") {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	created, errs := make([]*corev1.ConfigMap, len(pods)), make([]error, len(pods))
	inParallel(ctx, len(pods), func(ctx context.Context, i int) { created[i], errs[i] = p.create(ctx, pods[i]) })
	for i, pod := range pods {
		switch {
		case errs[i] != nil:
			p.failed(ctx, "create "+pod, "", errs[i], "Creating a contract failed", "pod", pod)
		case created[i].Labels[contract.PoolLabel] != p.Name:
			p.delay("create "+pod, "")
			if !p.foreign[pod] {
				p.foreign[pod] = true
				p.foreignObject(aboutConfigMap(created[i]))
				logr.FromContextOrDiscard(ctx).Info("The ConfigMap with the name of a pod does not belong to the pool, so the pod gets no work", "pod", pod)
			}
		default:
			delete(p.foreign, pod)
			delete(p.failures, "create "+pod)
			p.have(pod, created[i])
		}
	}
}

// create creates an empty ConfigMap. If there is one already, it returns that.
func (p *pass) create(ctx context.Context, pod string) (*corev1.ConfigMap, error) {
	cms := p.configMaps.ConfigMaps(p.Namespace)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: pod, Labels: map[string]string{contract.PoolLabel: p.Name}}}
	created, err := cms.Create(ctx, cm, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return cms.Get(ctx, pod, metav1.GetOptions{}) //nolint:wrapcheck // logged with the pod
	}
	return created, err //nolint:wrapcheck // as above
}

// have makes the rest of the pass use a contract that this process has written or read. If another
// writer has already changed or deleted it, the next pass observes that.
func (p *pass) have(pod string, cm *corev1.ConfigMap) {
	v := p.loop.contracts.wrote(cm)
	if v == nil || v.resourceVersion != cm.ResourceVersion {
		return
	}
	p.contracts[pod] = v
	delete(p.views, pod)
	p.observe(pod, v, true)
}

// writeContracts builds the contracts of all pods, and writes those that must change.
func (p *pass) writeContracts(ctx context.Context) {
	naming := p.naming()
	p.contractors = make(map[string]string, len(p.contracts))
	for pod, v := range p.contracts {
		p.contractors[v.parsed.contract.Incarnation] = pod
	}
	plans, reads := map[string]contract.Plan{}, map[types.UID]*contract.Reference{}
	build := func(pod string) {
		in := p.input(pod, naming)
		plans[pod] = contract.Build(in)
		for _, uid := range plans[pod].Read {
			reads[uid] = p.reference(pod, uid)
		}
	}
	for pod, v := range p.members {
		if v.parsed.holder != "" && p.contracts[pod] != nil {
			build(pod)
		}
	}
	if p.readLive(ctx, reads) {
		naming = p.naming()
		for pod, plan := range plans {
			if len(plan.Read) > 0 {
				build(pod)
			}
		}
	}
	p.noteTooLarge(plans)
	p.apply(ctx, plans)
}

// naming returns the resources whose decisions name an incarnation.
func (p *pass) naming() map[string][]*version[*resource] {
	all := map[string][]*version[*resource]{}
	for _, v := range p.resources {
		if v.parsed.kind.pruned {
			continue // it grants nothing
		}
		var last string
		for _, shares := range [][]placement.Placement{v.parsed.status.Placement, v.parsed.status.Releasing} {
			for i := range shares {
				if last = shares[i].Incarnation; last != "" {
					all[last] = append(all[last], v)
				}
			}
		}
	}
	return all
}

// input returns the input for the contract of a pod.
func (p *pass) input(pod string, naming map[string][]*version[*resource]) *contract.Input {
	in := &contract.Input{Incarnation: p.members[pod].parsed.holder, View: p.view(pod), Overlap: p.Overlap, Owners: p.contracted}
	most := max(len(naming[in.Incarnation]), len(in.View.Contract.Entries))
	in.Placed = make([]contract.Placed, 0, most)
	added := make(map[types.UID]bool, most)
	add := func(v *version[*resource]) {
		if added[v.uid] {
			return
		}
		added[v.uid] = true
		placed := v.parsed.placed
		placed.Status, placed.Live = v.parsed.status, p.isLive(pod, v)
		in.Placed = append(in.Placed, placed)
	}
	for _, v := range naming[in.Incarnation] {
		add(v)
	}
	for i := range in.View.Contract.Entries {
		uid := in.View.Contract.Entries[i].UID
		switch v := p.byUID[uid]; {
		case v != nil && !v.parsed.kind.pruned:
			add(v)
		case v == nil && p.isGone(uid):
			in.Placed = append(in.Placed, contract.Placed{Reference: contract.Reference{UID: uid}, Gone: true})
		}
	}
	return in
}

// contracted returns the view of the pod whose contract is for an incarnation, if that one renews
// its Lease: the contract and the acknowledgement of one that has ended stay as they are.
func (p *pass) contracted(incarnation string) (*contract.View, bool) {
	pod, ok := p.contractors[incarnation]
	m := p.members[pod]
	if !ok || m == nil || m.parsed.holder != incarnation || !p.isHeld(m) {
		return nil, false
	}
	return p.view(pod), true
}

// isGone reports whether a resource is known not to exist any longer.
func (p *pass) isGone(uid types.UID) bool {
	if p.gone[uid] {
		return true
	}
	for _, k := range p.kinds {
		if k.store.isDeleted(uid) {
			return true
		}
	}
	return false
}

// reference returns where a resource is that must be read live, or nil if that is unknown.
func (p *pass) reference(pod string, uid types.UID) *contract.Reference {
	if v := p.byUID[uid]; v != nil {
		return &v.parsed.placed.Reference
	}
	if e := p.contracts[pod].parsed.contract.Entry(uid); e != nil {
		return &e.Reference
	}
	return nil
}

// readLive reads resources from the API server. It reports whether any was read.
func (p *pass) readLive(ctx context.Context, reads map[types.UID]*contract.Reference) bool {
	uids := slices.Sorted(maps.Keys(reads))
	found, errs, try := make([]*unstructured.Unstructured, len(uids)), make([]error, len(uids)), make([]bool, len(uids))
	for i, uid := range uids {
		v := p.byUID[uid]
		try[i] = (v == nil || !v.parsed.kind.pruned) && p.mayTry("read "+string(uid), "")
	}
	inParallel(ctx, len(uids), func(ctx context.Context, i int) {
		if ref := reads[uids[i]]; ref != nil {
			if k := p.kindOf(ref); k != nil && ref.Namespace == p.Namespace && try[i] {
				found[i], errs[i] = k.client.Get(ctx, ref.Name, metav1.GetOptions{})
			}
		}
	})
	for i, uid := range uids {
		switch {
		case apierrors.IsNotFound(errs[i]), found[i] != nil && errs[i] == nil && found[i].GetUID() != uid:
			p.gone[uid] = true
			delete(p.byUID, uid)
			p.resources = slices.DeleteFunc(p.resources, func(v *version[*resource]) bool { return v.uid == uid })
		case errs[i] != nil:
			p.failed(ctx, "read "+string(uid), "", errs[i], "Reading a resource failed", "resource", reads[uid].Name)
		case found[i] != nil:
			delete(p.failures, "read "+string(uid))
			p.goOnWith(p.kindOf(reads[uid]).store.wrote(found[i]), p.byUID[uid])
		}
	}
	return len(uids) > 0
}

// noteTooLarge remembers which resources did not fit, for their conditions.
func (p *pass) noteTooLarge(plans map[string]contract.Plan) {
	now := map[types.UID]bool{}
	for _, plan := range plans {
		for _, uid := range plan.TooLarge {
			now[uid] = true
		}
	}
	if !maps.Equal(now, p.tooLarge) {
		p.tooLarge = now
		p.wake(passPeriod)
	}
}

// apply executes plans.
func (p *pass) apply(ctx context.Context, plans map[string]contract.Plan) {
	var pods []string
	for pod, plan := range plans {
		if (plan.Action == contract.Update || plan.Action == contract.Delete) && p.mayTry("contract "+pod, p.contracts[pod].resourceVersion) {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	written, errs := make([]*corev1.ConfigMap, len(pods)), make([]error, len(pods))
	inParallel(ctx, len(pods), func(ctx context.Context, i int) {
		plan := plans[pods[i]]
		written[i], errs[i] = p.write(ctx, p.contracts[pods[i]].parsed.configMap, &plan)
	})
	for i, pod := range pods {
		switch {
		case errs[i] != nil:
			p.failed(ctx, "contract "+pod, p.contracts[pod].resourceVersion, errs[i], "Writing a contract failed", "pod", pod)
		case written[i] != nil:
			delete(p.failures, "contract "+pod)
			p.granted = time.Now()
			p.have(pod, written[i])
		default:
			logr.FromContextOrDiscard(ctx).Info("Deleted a malformed contract", "pod", pod)
		}
	}
}

// write executes a plan, with the version from which it was computed as the precondition. It
// returns nil if the contract was deleted; the watch shows that.
func (p *pass) write(ctx context.Context, before *corev1.ConfigMap, plan *contract.Plan) (*corev1.ConfigMap, error) {
	cms := p.configMaps.ConfigMaps(p.Namespace)
	if plan.Action == contract.Delete {
		return nil, cms.Delete(ctx, before.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &before.UID, ResourceVersion: &before.ResourceVersion}})
	}
	next := before.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[contract.DataKey] = string(plan.Contract.Encode())
	return cms.Update(ctx, next, metav1.UpdateOptions{}) //nolint:wrapcheck // logged with the pod
}
