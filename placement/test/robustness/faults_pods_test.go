package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/test/sabotage"
)

// once is a fault that has nothing to heal.
type once struct {
	what   string
	inject func(ctx context.Context) error
}

// Inject implements [sabotage.Fault].
func (f *once) Inject(ctx context.Context) error { return f.inject(ctx) }

// Heal implements [sabotage.Fault].
func (*once) Heal(context.Context) error { return nil }

// String describes the fault.
func (f *once) String() string { return f.what }

// Separate types are counted separately.
type (
	killGuard    struct{ once }
	killWorkers  struct{ once }
	deleteLease  struct{ once }
	harmContract struct{ once }
)

// drawKillGuard kills the guards of agents. The agents end, and start again.
func (w *world) drawKillGuard(r *rand.Rand) sabotage.Fault {
	victims := sabotage.Some(r, w.pods)
	return &killGuard{once{"kill -9 of the guards of " + sabotage.Names(victims), func(context.Context) error {
		var errs []error
		for _, p := range victims {
			errs = append(errs, p.killGuard())
		}
		return errors.Join(errs...)
	}}}
}

// drawKillWorkers kills the program of a virtual replica, which the agent starts again after a
// second: the delay grows with each failure, so the programs of an index are not killed again.
func (w *world) drawKillWorkers(r *rand.Rand) sabotage.Fault {
	at := r.Uint64()
	return &killWorkers{once{"kill -9 of a program", func(context.Context) error {
		all := w.observer.spared()
		if len(all) == 0 {
			return errors.New("no program runs that was not killed before")
		}
		e := all[at%uint64(len(all))]
		w.observer.spend(e)
		w.note("kill -9 of the program of %s %d in %s", e.Name, e.Index, e.Pod)
		return send(e.PID, syscall.SIGKILL)
	}}}
}

// drawDeleteLease deletes the Lease of a pod.
func (w *world) drawDeleteLease(r *rand.Rand) sabotage.Fault {
	victim := w.pods[r.IntN(len(w.pods))]
	return &deleteLease{once{"deletion of the Lease of " + victim.String(), func(ctx context.Context) error {
		return client.IgnoreNotFound(w.client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: meta(victim.String())}))
	}}}
}

// drawHarmContract deletes the contract of a pod, or makes it malformed.
func (w *world) drawHarmContract(r *rand.Rand) sabotage.Fault {
	victim := w.pods[r.IntN(len(w.pods))]
	if r.IntN(3) > 0 {
		return &harmContract{once{"deletion of the contract of " + victim.String(), func(ctx context.Context) error {
			return client.IgnoreNotFound(w.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: meta(victim.String())}))
		}}}
	}
	return &harmContract{once{"malformed contract of " + victim.String(), func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"data":{%q:"{"}}`, contract.DataKey)
		return client.IgnoreNotFound(w.client.Patch(ctx, &corev1.ConfigMap{ObjectMeta: meta(victim.String())}, client.RawPatch(types.MergePatchType, patch)))
	}}}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

// roll replaces all pods, one after the other.
type roll struct {
	world *world
	gap   time.Duration
	stop  context.CancelFunc
	ended sync.WaitGroup
}

func (w *world) drawRoll(r *rand.Rand) sabotage.Fault {
	return &roll{world: w, gap: sabotage.Between(r, 200*time.Millisecond, 2*time.Second)}
}

// Inject implements [sabotage.Fault].
func (f *roll) Inject(ctx context.Context) error {
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.ended.Go(func() {
		for _, p := range f.world.pods {
			if err := p.terminate(); err != nil {
				f.world.fail("ending %s: %v", p, err)
			}
			if err := p.release(context.WithoutCancel(ctx), true); err != nil {
				f.world.fail("replacing %s: %v", p, err)
			}
			if !sabotage.Wait(ctx, f.gap) {
				return
			}
		}
	})
	return nil
}

// Heal implements [sabotage.Fault].
func (f *roll) Heal(context.Context) error {
	f.stop()
	f.ended.Wait()
	return nil
}

// String describes the fault.
func (f *roll) String() string { return fmt.Sprintf("roll of the pods, one each %s", f.gap) }

// blackoutTime is longer than Ready may be True without work.
const blackoutTime = readyLimit + 5*time.Second

// blackout keeps all pods down for so long that nothing may be Ready.
type blackout struct {
	downtime

	until time.Time
}

func (w *world) drawBlackout(*rand.Rand) sabotage.Fault {
	return &blackout{downtime: downtime{victims: w.pods, down: func(p *process) error { return p.kill(true) }}}
}

// Inject implements [sabotage.Fault].
func (f *blackout) Inject(ctx context.Context) error {
	f.until = time.Now().Add(blackoutTime)
	return f.downtime.Inject(ctx)
}

// Heal implements [sabotage.Fault].
func (f *blackout) Heal(ctx context.Context) error {
	sabotage.Wait(ctx, time.Until(f.until))
	return f.downtime.Heal(ctx)
}

// String describes the fault.
func (f *blackout) String() string { return "kill -9 of all pods" }

// shrinkSet lowers the replicas of the StatefulSet, and ends the pods that it has no more.
type shrinkSet struct {
	downtime

	world *world
	to    int32
}

func (w *world) drawShrinkSet(r *rand.Rand) sabotage.Fault {
	to := 1 + r.Int32N(podCount-1)
	return &shrinkSet{downtime{victims: w.pods[to:], asNew: true, down: (*process).terminate, what: "SIGTERM"}, w, to}
}

// Inject implements [sabotage.Fault].
func (f *shrinkSet) Inject(ctx context.Context) error {
	return errors.Join(f.world.resize(ctx, f.to), f.downtime.Inject(ctx))
}

// Heal implements [sabotage.Fault].
func (f *shrinkSet) Heal(ctx context.Context) error {
	return errors.Join(f.downtime.Heal(ctx), f.world.resize(ctx, podCount))
}

// String describes the fault.
func (f *shrinkSet) String() string { return fmt.Sprintf("the StatefulSet has %d replicas", f.to) }

// resize sets the replicas of the StatefulSet.
func (w *world) resize(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	return w.client.Patch(ctx, &appsv1.StatefulSet{ObjectMeta: meta(set)}, client.RawPatch(types.MergePatchType, patch))
}
