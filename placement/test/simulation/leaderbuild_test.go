package simulation

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

// release checks which incarnations no longer work on indexes that were taken from them.
func (l *leader) release(name int) {
	r := l.resource(name)
	if r == nil || len(r.status.Releasing) == 0 {
		return
	}
	view := l.viewOf(r)
	if l.mutant.releaseView != nil {
		honest := view
		view = func(incarnation string) (*contract.View, bool) {
			v, ok := honest(incarnation)
			if ok {
				l.mutant.releaseView(v, r.uid, incarnation)
			}
			return v, ok
		}
	}
	status, changed, err := contract.Release(r.status, r.uid, view, l.endedOf(r), l.floor(r))
	if err != nil {
		panic(err)
	}
	if changed {
		l.putStatus(r, status, true, "releases", "")
	}
}

// input returns the input for the contract of a pod.
func (l *leader) input(name int, incarnation string) *contract.Input {
	in := &contract.Input{Incarnation: incarnation, View: l.view(name), Overlap: l.settings.overlap}
	in.Owners = func(owner string) (*contract.View, bool) {
		for other := range pods {
			le := l.lease(other)
			if le == nil || le.holder != owner || l.clock()-l.sighting[other].at >= leaseDuration {
				continue // it may have ended
			}
			if v := l.view(other); v.Contract.Incarnation == owner {
				return v, true
			}
		}
		return nil, false
	}
	for other := range resources {
		if r := l.resource(other); r != nil {
			p := placed(r)
			f := l.fresh[other]
			p.Live = f.uid == r.uid && f.rv == r.rv && f.turn > l.since[name]
			in.Placed = append(in.Placed, p)
		}
	}
	return in
}

func placed(r *resource) contract.Placed {
	return contract.Placed{
		Reference:  contract.Reference{UID: r.uid, APIVersion: "v1", Kind: "Q", Namespace: "n", Name: strconv.Itoa(r.name)},
		Generation: r.generation, Of: r.wanted, Status: r.status,
	}
}

// build writes the contract of a pod.
func (l *leader) build(name int) {
	le := l.lease(name)
	if le == nil || le.holder == "" {
		return
	}
	in := l.input(name, le.holder)
	if l.mutant.input != nil {
		l.mutant.input(l, in)
	}
	plan := contract.Build(in)
	if len(plan.Read) > 0 && l.readLive(name, in, plan.Read) {
		plan = contract.Build(in)
	}
	if l.mutant.plan != nil {
		l.mutant.plan(l, in, &plan)
	}
	read := l.cm[name]
	switch plan.Action {
	case contract.Nothing, contract.Delete:
	case contract.Create:
		l.send(func() func() {
			if l.world.createContract(name, l.ownerOfPodObject(contractKind, podUID(le.holder)), plan.Contract) == nil {
				return nil
			}
			l.world.record("%s creates the contract of %s: %s", l.name, podName(name), contractText(&plan.Contract))
			return func() { l.wrote(contractKind, name) }
		})
	case contract.Update:
		l.update(name, read, plan.Contract)
	}
}

func (l *leader) update(name int, read *configMap, next contract.Contract) {
	l.send(func() func() {
		before := l.world.contract(name)
		stored := l.world.putContract(name, read, next, l.mutant.buildsBlindly)
		if stored == nil {
			l.world.record("%s: conflict at the contract of %s", l.name, podName(name))
			return nil
		}
		l.world.record("%s writes generation %d for %s: %s", l.name, next.Generation, next.Incarnation, contractText(&next))
		l.world.ghost.writesContract(l.simulation, name, &before.contract, &next)
		return func() {
			l.wrote(contractKind, name)
			l.cm[name] = stored // no other writer has changed it, so earlier observations remain valid
			l.seen[name] = l.seen[name].With(stored.uid, next.Generation, stored.digest)
		}
	})
}

// readLive reads resources from the API server, after the contract was observed. It may fail.
func (l *leader) readLive(name int, in *contract.Input, uids []types.UID) bool {
	for _, uid := range uids {
		failed := l.choices.Happens(l.settings.lostAnswers)
		if failed && !l.mutant.removesOnError {
			l.world.record("%s cannot read %s", l.name, uid)
			return false
		}
		at := slices.IndexFunc(in.Placed, func(p contract.Placed) bool { return p.UID == uid })
		if at < 0 {
			in.Placed = append(in.Placed, contract.Placed{Reference: contract.Reference{UID: uid}})
			at = len(in.Placed) - 1
		}
		in.Placed[at].Gone = true
		if failed {
			continue
		}
		for other := range resources {
			if r := l.world.resource(other); r != nil && r.uid == uid {
				in.Placed[at] = placed(r)
				in.Placed[at].Live = true
				l.fresh[other] = freshDecision{l.turn, r.uid, r.rv}
			}
		}
	}
	return name >= 0
}

// report writes the conditions of a resource.
func (l *leader) report(name int) {
	r := l.resource(name)
	if r == nil {
		return
	}
	in := &ready.Input{UID: r.uid, Generation: r.generation, Wanted: r.wanted, Status: r.status}
	in.Pods = func(incarnation string) (ready.Pod, bool) {
		pod, ok := podOf(r, incarnation)
		le := l.lease(pod)
		if !ok || le == nil {
			return ready.Pod{}, false
		}
		v := l.view(pod)
		if l.mutant.readyView != nil {
			l.mutant.readyView(v, r.uid, incarnation)
		}
		return ready.Pod{View: v, Working: le.holder == incarnation && l.clock()-l.sighting[pod].at < leaseDuration}, true
	}
	if l.mutant.readyInput != nil {
		l.mutant.readyInput(in)
	}
	conditions, working := ready.Of(in)
	for i := range conditions {
		conditions[i].Message = ""
	}
	isReady := meta.IsStatusConditionTrue(conditions, ready.Ready)
	was := meta.IsStatusConditionTrue(r.status.Conditions, ready.Ready)
	before := meta.FindStatusCondition(r.status.Conditions, ready.Ready)
	if isReady == was && r.status.ReadyVReplicas == working && before != nil && before.Reason == conditions[2].Reason {
		return
	}
	var status placement.Status
	r.status.DeepCopyInto(&status)
	status.Conditions, status.ReadyVReplicas = conditions, working
	l.send(func() func() {
		stored := l.world.putStatus(r, status, false)
		if stored == nil {
			return nil
		}
		l.world.record("%s reports %s: ready %v, %s", l.name, r.uid, isReady, conditions[2].Reason)
		if isReady {
			l.world.ghost.checkReady(l.simulation, stored)
		}
		return func() { l.wrote(resourceKind, name) }
	})
}
