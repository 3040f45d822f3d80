package controller

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"nodekeeper.dev/placement"
)

// leaseWorld is a loop with the Lease of one pod. It must be used in a bubble of synctest.
type leaseWorld struct {
	*loop

	t     *testing.T
	fake  *fake.Clientset
	lease *coordinationv1.Lease
	away  bool // of the API server
	begun time.Time
}

func newLeaseWorld(t *testing.T, holder string, seconds int32) *leaseWorld {
	t.Helper()
	w := &leaseWorld{t: t, begun: time.Now(), lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w-0", UID: "l", ResourceVersion: "5"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}}
	w.fake = fake.NewClientset(w.lease)
	w.fake.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).ResourceVersion = "100" // as the API server does
		return false, nil, nil
	})
	w.fake.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.away, nil, errors.New("connection refused")
	})
	w.loop = newLoop(&clients{leases: w.fake.CoordinationV1(), configMaps: w.fake.CoreV1()}, Pool{Name: "p", Namespace: "n"}, nil)
	w.reflectors()
	require.NoError(t, w.leaseRows.Add(w.lease.DeepCopy()))
	return w
}

// write stores a version of the Lease, which the watch delivers unless the API server is away.
func (w *leaseWorld) write(resourceVersion string, change func(*coordinationv1.Lease)) {
	w.t.Helper()
	w.lease = w.lease.DeepCopy()
	w.lease.ResourceVersion = resourceVersion
	change(w.lease)
	require.NoError(w.t, w.fake.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), w.lease, "n"))
	require.NoError(w.t, w.leaseRows.Update(w.lease.DeepCopy()))
}

// runUntil makes the passes of some time after the begin, as far as they concern Leases. It returns
// after which time the Lease was taken over, or 0.
func (w *leaseWorld) runUntil(d time.Duration) (taken time.Duration) {
	for time.Since(w.begun) < d {
		p := &pass{loop: w.loop, now: time.Now()}
		p.seeMembers()
		p.takeOver(w.t.Context())
		if p.members["w-0"] == nil || p.members["w-0"].parsed.holder == "" {
			return time.Since(w.begun)
		}
		if p.isHeld(p.members["w-0"]) { // as schedulePods does
			p.wake(p.duration(p.members["w-0"]))
		}
		require.Positive(w.t, p.due)
		time.Sleep(min(max(p.due, passPeriod), d-time.Since(w.begun)))
	}
	return 0
}

const leaseTime = 15 * time.Second

func TestSilentPodIsTakenOverAfterTwiceItsDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseWorld(t, "u/1-15s", 15)
		taken := w.runUntil(time.Minute)
		assert.GreaterOrEqual(t, taken, 2*leaseTime)
		assert.LessOrEqual(t, taken, 2*leaseTime+passPeriod)
		assert.Equal(t, []string{"u/1-15s"}, w.leaseRows.all()["w-0"].parsed.ended)
		assert.Equal(t, map[string]time.Time{"u/1-15s": w.begun}, w.losses, "patience counts from its last renewal")
	})
}

// TestOutageIsNoSilence: after an outage, an agent needs some time to renew its Lease.
func TestOutageIsNoSilence(t *testing.T) {
	t.Parallel()
	for name, away := range map[string][2]time.Duration{
		"from the first second": {time.Second, 100 * time.Second}, "just before the takeover": {2*leaseTime - 5*time.Second, 3 * leaseTime}, "short": {2*leaseTime - 8*time.Second, 2*leaseTime - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseWorld(t, "u/1-15s", 15)
				require.Zero(t, w.runUntil(away[0]))
				w.away = true
				require.Zero(t, w.runUntil(away[1]))
				w.away = false
				require.Zero(t, w.runUntil(away[1]+leaseTime-time.Second))
				w.write("6", func(*coordinationv1.Lease) {}) // the agent comes back at last
				begin := time.Since(w.begun)
				taken := w.runUntil(time.Hour)
				assert.GreaterOrEqual(t, taken, begin+2*leaseTime)
				assert.LessOrEqual(t, taken, begin+2*leaseTime+passPeriod)
			})
		})
	}
}

// TestEditedDurationDoesNotCount: whether the incarnation names its duration or not.
func TestEditedDurationDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"u/1-15s", "foreign"} {
		synctest.Test(t, func(t *testing.T) {
			w := newLeaseWorld(t, holder, 15)
			require.Zero(t, w.runUntil(time.Second))
			w.write("6", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(1)) })
			assert.GreaterOrEqual(t, w.runUntil(time.Minute), time.Second+2*leaseTime, holder)
		})
	}
}

// TestLostIncarnationHasItsOwnDuration: its Lease is gone, or has another holder.
func TestLostIncarnationHasItsOwnDuration(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]time.Duration{"u/1-60s": 2 * time.Minute, "u/1-3s": 6 * time.Second, "foreign": 2 * defaultDuration, "seen": 100 * time.Second} {
		for _, next := range []string{"", "u/2-5s"} {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseWorld(t, "seen", 50)
				(&pass{loop: w.loop, now: time.Now()}).seeMembers()
				w.write("6", func(l *coordinationv1.Lease) {
					l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &next, new(int32(5))
				})
				r := &resource{status: placement.Status{Releasing: []placement.Placement{{PodName: "w-0", Incarnation: holder}}}}
				for time.Since(w.begun) < want+10*time.Second {
					p := &pass{loop: w.loop, now: time.Now(), resources: []*version[*resource]{{parsed: r}}}
					p.seeMembers()
					p.survey(t.Context())
					require.Equal(t, time.Since(w.begun) >= want, p.hasEnded(holder), "%s after %s", holder, time.Since(w.begun))
					time.Sleep(time.Second)
				}
			})
		}
	}
}

// TestInvalidPodNameEnds: an edited status names a pod that cannot exist.
func TestInvalidPodNameEnds(t *testing.T) {
	t.Parallel()
	for _, pod := range []string{"", "../w-0", "W", "a/b"} {
		synctest.Test(t, func(t *testing.T) {
			w := newLeaseWorld(t, "u/1-15s", 15)
			w.fake.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("as the client says")
			})
			r := &resource{status: placement.Status{Placeable: placement.Placeable{Placement: []placement.Placement{{PodName: pod, Incarnation: "x/1-15s"}}}}}
			for range 2 {
				p := &pass{loop: w.loop, now: time.Now(), resources: []*version[*resource]{{parsed: r}}}
				p.seeMembers()
				p.survey(t.Context())
				assert.Equal(t, time.Since(w.begun) > 0, p.hasEnded("x/1-15s"))
				time.Sleep(2 * leaseTime)
			}
		})
	}
}

// TestRetriesComeLaterAndLater, unless the object changes.
func TestRetriesComeLaterAndLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseWorld(t, "u/1-15s", 15)
		var tries []time.Duration
		for time.Since(w.begun) < 3*time.Minute {
			p := &pass{loop: w.loop, now: time.Now()}
			if p.mayTry("contract w-0", "7") {
				tries = append(tries, time.Since(w.begun)/time.Second)
				p.failed(t.Context(), "contract w-0", "7", errors.New("refused"), "Writing a contract failed")
			}
			assert.True(t, p.mayTry("contract w-0", "8"))
			p.forgetFailures()
			time.Sleep(passPeriod)
		}
		assert.Equal(t, []time.Duration{0, 1, 3, 7, 15, 31, 63, 123}, tries)
	})
}
