package controller_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/internal/command"
	"nodekeeper.dev/placement/test/queues"
)

var churnTime = flag.Duration("churn", 20*time.Second, "how long pods and resources come and go")

// ledger knows which incarnation works on what, by the name of the resource. It is safe for
// concurrent use.
type ledger struct {
	mu      sync.Mutex
	working map[unit]work
	highest map[unit]work
	births  map[string]int // the order in which resources were created, by UID
	broken  error
}

// isBorn records that a resource was created.
func (l *ledger) isBorn(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.births[uid] = len(l.births) + 1
}

// isOlder reports whether a resource was created before another one.
func (l *ledger) isOlder(a, b string) bool { return l.births[a] < l.births[b] }

type unit struct {
	name  string
	index int32
}

type work struct {
	uid, incarnation string
	epoch            int64
	until            time.Time // the work ends then, unless the Lease is renewed
}

// follow records that an incarnation works on exactly what a contract lists, until its Lease must be
// renewed. Other work of it has ended.
func (l *ledger) follow(c *contract.Contract, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u, now := range l.working {
		if now.incarnation == c.Incarnation {
			delete(l.working, u)
		}
	}
	if time.Now().After(until) {
		return
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		for index, epoch := range e.Replicas {
			u, next := unit{e.Name, index}, work{string(e.UID), c.Incarnation, epoch, until}
			other, isWorking := l.working[u]
			last := l.highest[u]
			switch {
			case isWorking && other.uid == next.uid && time.Now().Before(other.until):
				l.broken = fmt.Errorf("%s and %s work on %v", next.incarnation, other.incarnation, u)
			case last.uid == next.uid && (epoch < last.epoch || epoch == last.epoch && last.incarnation != next.incarnation),
				last.uid != "" && l.isOlder(last.uid, next.uid) && epoch <= last.epoch: // it was created again under its name
				l.broken = fmt.Errorf("%s works on %v with epoch %d after %d of %s", next.incarnation, u, epoch, last.epoch, last.incarnation)
			}
			l.working[u] = next
			if !l.isOlder(next.uid, last.uid) {
				l.highest[u] = next
			}
		}
	}
}

// end records that an incarnation has ended.
func (l *ledger) end(incarnation string) {
	l.follow(&contract.Contract{Incarnation: incarnation}, time.Time{})
}

func (l *ledger) check(t require.TestingT) {
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(t, l.broken)
}

// churn changes pods and resources at random. It returns the pods that are left.
func (w *world) churn(random *rand.Rand, names []string) (pods []*pod) {
	w.t.Helper()
	next := 0
	add := func(name string) { pods = append(pods, w.join(name, 4*time.Second)) }
	for range 4 {
		add(fmt.Sprintf("w-%d", next))
		next++
	}
	for end := time.Now().Add(*churnTime); time.Now().Before(end); {
		at := random.IntN(len(pods))
		p := pods[at]
		switch random.IntN(8) {
		case 0, 1: // it returns under its name
			p.leave()
			pods[at] = w.join(p.name, 4*time.Second)
		case 2: // it is killed, and another one comes
			p.stop()
			pods = append(pods[:at], pods[at+1:]...)
			add(fmt.Sprintf("w-%d", next))
			next++
		case 3:
			w.patch(p.lease(w.t), `{"metadata":{"annotations":{%q:%s}}}`, contract.UnschedulableAnnotation, []string{`"true"`, "null"}[random.IntN(2)])
		case 4:
			cm := &corev1.ConfigMap{ObjectMeta: w.meta(p.name)}
			require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), cm)))
		case 5:
			name := names[random.IntN(len(names))]
			require.NoError(w.t, w.Delete(w.t.Context(), newQueue(w, name)))
			w.queue(name, 4)
		default:
			w.patch(newQueue(w, names[random.IntN(len(names))]), `{"spec":{"partitions":%d}}`, random.IntN(9))
		}
		w.work.check(w.t)
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
	}
	return pods
}

func newQueue(w *world, name string) *unstructured.Unstructured {
	return queues.New(w.namespace, name, 0)
}

// settle ends the churn, and waits until everything is worked on by the pods that are left.
func (w *world) settle(pods []*pod, names []string) {
	w.t.Helper()
	for _, p := range pods {
		w.patch(p.lease(w.t), `{"metadata":{"annotations":{%q:null}}}`, contract.UnschedulableAnnotation)
	}
	for _, name := range names {
		w.patch(newQueue(w, name), `{"spec":{"partitions":6}}`)
	}
	for end := time.Now().Add(patience); ; time.Sleep(period) {
		w.work.check(w.t)
		w.rejoin(pods)
		left := w.unsettled(names)
		if left == "" {
			return
		}
		require.True(w.t, time.Now().Before(end), left)
	}
}

// rejoin lets the pods whose Leases were taken over join again, as agents do: on a busy machine,
// that happens at any time.
func (w *world) rejoin(pods []*pod) {
	w.t.Helper()
	for i, p := range pods {
		select {
		case <-p.over:
			pods[i] = w.join(p.name, p.duration)
		default:
		}
	}
}

// unsettled describes a Queue that is not worked on as a whole, if there is one.
func (w *world) unsettled(names []string) string {
	w.t.Helper()
	for _, name := range names {
		s := w.status(w.t, name)
		c := meta.FindStatusCondition(s.Conditions, "Ready")
		if owned := len(owners(w.t, &s)); owned != 6 || s.ReadyVReplicas != 6 || c == nil || c.Reason != "Ready" {
			return fmt.Sprintf("%s has %d owners, and %d work: %v", name, owned, s.ReadyVReplicas, s.Conditions)
		}
	}
	return ""
}

// TestTwoControllersWithoutElection: both decide all the time, and no two pods work on one vreplica.
func TestTwoControllersWithoutElection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "rebalance: 2")
	w.start("rebalance: 2")
	names := []string{"orders", "mails", "clicks"}
	for _, name := range names {
		w.queue(name, 4)
	}
	w.settle(w.churn(rand.New(rand.NewPCG(1, 2)), names), names)
}

// TestLeadersThatChange: the program runs twice with leader election, and the leader ends again and
// again.
func TestLeadersThatChange(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t)
	names := []string{"orders", "mails"}
	for _, name := range names {
		w.queue(name, 4)
	}
	var group sync.WaitGroup
	churning, cancel := context.WithCancel(t.Context())
	defer group.Wait()
	defer cancel()
	for i := range 2 {
		group.Go(func() {
			for n := 0; churning.Err() == nil; n++ {
				ctx, cancel := context.WithTimeout(churning, time.Duration(2+3*i)*time.Second)
				w.elect(ctx)
				cancel()
			}
		})
	}
	pods := w.churn(rand.New(rand.NewPCG(3, 4)), names)
	cancel()
	group.Wait()
	last, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		group.Go(func() { w.elect(last) })
	}
	w.settle(pods, names)
	stop()
}

// elect runs the command controller with leader election until ctx ends. It serves no metrics unless
// the arguments have an address.
func (w *world) elect(ctx context.Context, args ...string) {
	file := filepath.Join(w.t.TempDir(), "pools.yaml")
	if !assert.NoError(w.t, os.WriteFile(file, fmt.Appendf(nil, "pools: [{name: %s, namespace: %s, kinds: [%s]}]", pool, w.namespace, queueKind), 0o600)) {
		return
	}
	var log bytes.Buffer
	err := command.Controller(ctx, append([]string{"--kubeconfig=" + shared.Kubeconfig, "--pool-config=" + file, "--metrics-bind-address=0", "--health-probe-bind-address=0"}, args...), &log)
	if ctx.Err() == nil {
		assert.NoError(w.t, err, log.String())
	}
}
