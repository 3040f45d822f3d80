package library

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
)

// The load of TestExclusion: go test ./sharding/test/library -run TestExclusion -args
// -shard.duration=5m -shard.objects=500
var (
	duration = flag.Duration("shard.duration", 50*time.Second, "how long TestExclusion injects faults")
	objects  = flag.Int("shard.objects", 1000, "number of Secrets in TestExclusion")
	seed     = flag.Uint64("shard.seed", 0, "seed of the faults in TestExclusion; 0: a random seed")
)

const (
	// duringLease is short, so that shards die often. On a busy machine, some die for that reason
	// alone.
	duringLease = 4 * time.Second
	// longFreeze exceeds the time for which a shard may act without a renewal.
	longFreeze = duringLease
	// changePeriod is the interval between changes of random Secrets, which keep the shards busy.
	changePeriod = 10 * time.Millisecond
)

// chaos is a set of shards with injected faults.
type chaos struct {
	*cluster

	dir    string
	random *rand.Rand
	next   int
	// alive are the running shards, all includes the shards that have ended, and done counts the
	// faults.
	alive []*victim
	all   []*victim
	done  map[string]int
}

// victim is a running shard.
type victim struct {
	process

	journal string
	program *programs.Program
	proxy   *faultproxy.Proxy
	// keeps is set if the shard keeps its objects when it stops.
	keeps bool
	// froze and woken are the start and the end of the last long freeze, by the API server's clock,
	// or zero.
	froze, woken time.Time
}

// start starts a shard behind a proxy of its own.
func (x *chaos) start(name string) {
	x.t.Helper()
	x.next++
	proxy, _, kubeconfig := x.viaProxy()
	v := &victim{
		process: process{name: name}, journal: filepath.Join(x.dir, fmt.Sprintf("journal-%d", x.next)), proxy: proxy, keeps: x.random.IntN(2) == 0,
	}
	behind := *x.cluster
	behind.kubeconfig = kubeconfig
	v.program = behind.example(name, v.journal, "--work=50ms", "--lease-duration="+duringLease.String(), fmt.Sprintf("--keep-objects=%t", v.keeps))
	x.alive, x.all = append(x.alive, v), append(x.all, v)
}

func (x *chaos) fresh() string { return fmt.Sprintf("web-%d", x.next) }

// gone records that a shard has ended.
func (x *chaos) gone(v *victim) {
	<-v.program.Done()
	v.ended = monotonic()
	x.alive = slices.DeleteFunc(x.alive, func(other *victim) bool { return other == v })
}

// act injects faults.
func (x *chaos) act(ctx context.Context) {
	for _, v := range slices.Clone(x.alive) {
		select {
		case <-v.program.Done(): // it has lost its Lease
			x.done["lost"]++
			x.gone(v)
		default:
		}
	}
	if len(x.alive) < 3 {
		x.done["join"]++
		x.start(x.fresh())
		return
	}
	v := x.alive[x.random.IntN(len(x.alive))]
	switch what := x.random.IntN(7); what {
	case 0:
		x.done["join"]++
		if len(x.alive) < 5 {
			x.start(x.fresh())
		}
	case 1:
		assert.NoError(x.t, v.program.Stop(time.Minute))
		x.gone(v)
		if v.keeps {
			x.done["roll"]++
			x.start(v.name)
		} else {
			x.done["leave"]++
		}
	case 2:
		x.done["kill"]++
		assert.NoError(x.t, v.program.Kill())
		x.gone(v)
	case 3:
		x.freeze(ctx, v, longFreeze+time.Duration(x.random.IntN(10000))*time.Millisecond)
	case 4:
		x.freeze(ctx, v, 200*time.Millisecond)
	case 5:
		x.done["partition"]++
		heal := v.proxy.Inject(away{})
		x.pause(ctx, time.Duration(x.random.IntN(10000))*time.Millisecond)
		heal()
	case 6:
		x.done["restart"]++ // under the same name, with objects left
		lost := v.proxy.Inject(faultproxy.DropAnswers{Share: 0.2})
		x.pause(ctx, time.Second)
		lost()
		assert.NoError(x.t, v.program.Kill())
		x.gone(v)
		x.start(v.name)
	}
}

// freeze suspends a shard for a time.
func (x *chaos) freeze(ctx context.Context, v *victim, long time.Duration) {
	if v.program.Freeze(ctx) != nil {
		return // it has just ended
	}
	froze, from := time.Now(), monotonic()
	x.pause(ctx, long)
	if long >= longFreeze && time.Duration(monotonic()-from) >= longFreeze {
		x.done["long freeze"]++
		v.frozen, v.froze, v.woken = append(v.frozen, freeze{from, monotonic()}), froze, time.Now()
	} else {
		x.done["short freeze"]++
	}
	x.resume(v.program)
}

// pause waits for the whole duration, even at the end of the test.
func (*chaos) pause(_ context.Context, d time.Duration) { <-time.After(d) }

// TestExclusion covers R32 and R33: no object is reconciled twice at the same time while shards
// join, leave, are rolled, killed, frozen and partitioned, return under their names, and miss
// responses of the API server. With odd seeds, the ring controls no resources, so that shards
// complete hand-overs themselves. It runs before the other tests, because their shards would slow
// it down.
func TestExclusion(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	isDirect := *seed%2 == 1
	t.Logf("-shard.seed=%d, shards complete hand-overs themselves: %v", *seed, isDirect)
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Handover.Settle, r.Spec.Handover.MaxConcurrentMoves = &metav1.Duration{Duration: time.Second}, 1000
		if isDirect {
			r.Spec.Resources[0].ControlledResources = nil
		}
	})
	x := &chaos{cluster: c, dir: t.TempDir(), random: rand.New(rand.NewPCG(*seed, 0)), done: map[string]int{}}
	c.createAll(*objects)
	for range 3 {
		x.start(x.fresh())
	}
	for round := 0; round == 0 || round < 4 && !x.isEnough(); round++ { // a slow machine does little in one
		x.play(*duration)
	}
	for _, v := range slices.Clone(x.alive) { // while they are working
		assert.NoError(t, v.program.Kill())
		x.gone(v)
	}
	x.check()
}

// play lets things go wrong for a while.
func (x *chaos) play(duration time.Duration) {
	ctx, cancel := context.WithTimeout(x.t.Context(), duration)
	defer cancel()
	var changes sync.WaitGroup
	changes.Go(func() { x.change(ctx, *objects) })
	for ctx.Err() == nil {
		x.act(ctx)
		x.pause(ctx, time.Duration(x.random.IntN(2000))*time.Millisecond)
	}
	changes.Wait()
}

// enough returns what must be exceeded for the absence of violations to be significant: pieces of
// work, objects worked on by several, and kinds of faults. On two idle cores, there are six times
// as many pieces of work as objects, and all objects are covered.
func enough() (spans, moved, faults int) { return *objects / 10, *objects / 50, 3 }

// isEnough reports whether enough has happened.
func (x *chaos) isEnough() bool {
	minSpans, minMoved, minFaults := enough()
	spans, moved, _ := x.readJournals() // check asserts that there is no error
	return spans > minSpans && moved > minMoved && len(x.done) > minFaults
}

// readJournals reads the journals of all processes, and returns what they show; see checkExclusion.
func (x *chaos) readJournals() (spans, moved int, err error) {
	var processes []*process
	for _, v := range x.all {
		v.log = readJournal(x.t, v.journal)
		processes = append(processes, &v.process)
	}
	return checkExclusion(processes)
}

// check asserts that no rule is broken and that enough has happened for that to be significant.
func (x *chaos) check() {
	sent, checked := writes(x.t, x.namespace), 0
	for _, v := range x.all {
		own := sentBy(sent, v.name)
		// On a slow machine, a process can be frozen before it becomes a shard. It then joins after
		// the freeze. Without a long freeze, froze is zero.
		hadActed := slices.ContainsFunc(own, func(w write) bool { return w.RequestReceivedTimestamp.Before(v.froze) })
		if !hadActed {
			continue
		}
		checked++
		for _, w := range own {
			isLate := w.RequestReceivedTimestamp.After(v.woken) && w.ResponseStatus.Code < 300 && !x.isReused(v.name)
			assert.False(x.t, isLate, "%s sent %v %v at %s after it was woken at %s", v.name, w.Verb, w.ObjectRef, w.RequestReceivedTimestamp, v.woken)
		}
	}
	spans, moved, err := x.readJournals()
	if err != nil {
		text := err.Error()
		assert.Fail(x.t, "R32 is broken", "%.5000s", text)
	}
	x.t.Logf("%d processes, %d pieces of work, %d objects worked on by several, %d long freezes of shards, %v", len(x.all), spans, moved, checked, x.done)
	for _, what := range slices.Sorted(maps.Keys(x.done)) {
		x.t.Logf("%s: %d", what, x.done[what])
	}
	minSpans, minMoved, minFaults := enough()
	assert.Greater(x.t, spans, minSpans)
	assert.Greater(x.t, moved, minMoved)
	assert.Greater(x.t, len(x.done), minFaults)
}

// isReused reports whether several processes had the same name, which the audit log does not
// distinguish.
func (x *chaos) isReused(name string) bool {
	n := 0
	for _, v := range x.all {
		if v.name == name {
			n++
		}
	}
	return n > 1
}

// createAll creates n Secrets concurrently.
func (c *cluster) createAll(n int) {
	c.t.Helper()
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Go(func() {
			for i := worker; i < n; i += 10 {
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("s-%d", i)}, Data: map[string][]byte{"key": {}}}
				assert.NoError(c.t, c.Create(c.t.Context(), s))
			}
		})
	}
	wg.Wait()
	require.False(c.t, c.t.Failed())
}

// change changes random Secrets.
func (c *cluster) change(ctx context.Context, n int) {
	for i := 0; ctx.Err() == nil; i++ {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("s-%d", rand.IntN(n))}}
		patch := fmt.Sprintf(`{"stringData":{"key":"%d"}}`, i)
		if err := c.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil && ctx.Err() == nil {
			assert.NoError(c.t, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(changePeriod):
		}
	}
}
