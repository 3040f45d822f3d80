package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/shard"
)

// TestShardWithoutAPIServerStops covers R6 and the first fence of R33: once the API server is away
// for longer than the right lasts, contexts have ended, no reconcile begins, no request is sent,
// and Start returns.
func TestShardWithoutAPIServerStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(3)
	proxy, cfg, _ := c.viaProxy()
	var ended atomic.Int32
	w := &work{}
	w.do = func(ctx context.Context, _ reconcile.Request) error {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), shard.ErrLeaseLost) {
			ended.Add(1)
		}
		return nil
	}
	s := with(w)
	s.config, s.options.LeaseDuration = cfg, 30*time.Second // it must not end before it is cut off
	r := c.replica("web-0", s)
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, 1, w.total()) }, "it works on one object")
	fence, cancel := r.shard.Fence(t.Context())
	defer cancel()
	require.NoError(t, fence.Err())
	heal := proxy.Inject(away{})
	proxy.CutWatches()
	cut := time.Now()
	require.ErrorIs(t, r.wait(), shard.ErrLeaseLost)
	assert.Less(t, time.Since(cut), 22*time.Second+patience/6, "20 s after the last renewal, and two for the reconciler")
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 1, ended.Load()) }, "the reconciler returns")
	assert.Equal(t, 1, w.total(), "no other one has begun")
	assert.ErrorIs(t, context.Cause(fence), shard.ErrLeaseLost)

	heal()
	before := fenced(t, c.ring.Name)
	late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "late"}}
	assert.ErrorIs(t, r.mgr.GetClient().Create(t.Context(), late), shard.ErrFenced)
	assert.InDelta(t, before+1, fenced(t, c.ring.Name), 0)
	for _, w := range writes(t, c.namespace) {
		assert.NotEqual(t, "late", w.ObjectRef.Name)
	}
}

// fenced returns shard_fenced_requests_total of a ring in this process.
func fenced(t *testing.T, ring string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "shard_fenced_requests_total" && m.GetLabel()[0].GetValue() == ring {
				return m.GetCounter().GetValue()
			}
		}
	}
	require.Fail(t, "there is no such metric")
	return 0
}

// TestMetricsOfAShard covers the library's part of R40.
func TestMetricsOfAShard(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(7)
	c.replica("web-0", with(&work{}))
	c.eventually(func(t *assert.CollectT) {
		families, err := metrics.Registry.Gather()
		require.NoError(t, err)
		var text bytes.Buffer
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "shard_") {
				_, err := expfmt.MetricFamilyToText(&text, f)
				require.NoError(t, err)
			}
		}
		assert.Contains(t, text.String(), fmt.Sprintf("shard_objects{ring=%q} 7\n", c.ring.Name))
		assert.Contains(t, text.String(), fmt.Sprintf("shard_fenced_requests_total{ring=%q} 0\n", c.ring.Name))
		assert.Contains(t, text.String(), fmt.Sprintf("shard_gate_wait_seconds_count{ring=%q} 0\n", c.ring.Name))
	}, "metrics")
}

// TestExampleThatLostItsLeaseExits covers R6: another client has taken over the shard's Lease.
func TestExampleThatLostItsLeaseExits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(3)
	p := c.example("web-0", filepath.Join(t.TempDir(), "journal"), "--lease-duration=30s")
	c.eventually(func(t *assert.CollectT) { c.hasChecksums(t, 3) }, "it works")
	c.patch(c.lease(t), `{"spec":{"holderIdentity":"sharder"}}`)
	select {
	case <-p.Done():
	case <-time.After(patience):
		require.Fail(t, "it does not end")
	}
	assert.Equal(t, 1, p.ExitCode())
	assert.Contains(t, p.Output(), shard.ErrLeaseLost.Error())
	assert.Equal(t, "sharder", *c.lease(t).Spec.HolderIdentity, "it does not take it again")
}

// A shard does not act without its Lease.
func TestShardOfAnotherHolderWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.shardByHand("web-0")
	c.secrets(3)
	c.has(3)
	c.patch(c.lease(t), `{"spec":{"holderIdentity":"another"}}`)
	w := &work{}
	r := c.replica("web-0", with(w))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := r.mgr.GetClient().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "early"}})
	require.ErrorIs(t, err, context.DeadlineExceeded, "a write waits for the Lease")
	assert.Zero(t, w.total())
}

// TestFrozenExampleSendsNothing covers R33: a process that resumes after its objects have moved
// sends no request and exits.
func TestFrozenExampleSendsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(30)
	journal := filepath.Join(t.TempDir(), "journal")
	frozen := c.example("web-0", journal, "--lease-duration=30s", "--work=2s")
	c.eventually(func(t *assert.CollectT) {
		begun := 0
		for _, e := range readJournal(t, journal) {
			if e.Event == "begin" {
				begun++
			}
		}
		assert.Positive(t, begun)
	}, "it is at work")
	require.NoError(t, frozen.Freeze(t.Context()))
	c.example("web-1", journal)
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-1")
		c.hasChecksums(t, 30)
	}, "another one has all")
	before := len(sentBy(writes(t, c.namespace), "web-0"))
	c.resume(frozen)
	select {
	case <-frozen.Done():
	case <-time.After(patience):
		require.Fail(t, "it does not end")
	}
	assert.Equal(t, 1, frozen.ExitCode())
	assert.Contains(t, frozen.Output(), shard.ErrLeaseLost.Error())
	assert.Len(t, sentBy(writes(t, c.namespace), "web-0"), before)
}

func sentBy(all []write, program string) []write {
	var own []write
	for _, w := range all {
		if w.program() == program {
			own = append(own, w)
		}
	}
	return own
}

// TestElectedAndShardedControllersRunTogether covers R44. Upstream's manager has one Lease for both
// (F21).
func TestElectedAndShardedControllersRunTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(20)
	var leaders [2]atomic.Bool
	works := [2]*work{{}, {}}
	for i := range works {
		s := with(works[i])
		s.manager.LeaderElection, s.manager.LeaderElectionID, s.manager.LeaderElectionNamespace = true, "elected", c.namespace
		s.manager.LeaseDuration, s.manager.RenewDeadline = new(time.Minute), new(50*time.Second)
		add := s.controllers
		s.controllers = func(r *replica) error {
			if err := add(r); err != nil {
				return err
			}
			return r.mgr.Add(elected{&leaders[i]})
		}
		c.replica(fmt.Sprintf("web-%d", i), s)
	}
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0", "web-1")
		for i := range works {
			assert.Positive(t, works[i].total())
		}
		assert.True(t, leaders[0].Load() || leaders[1].Load())
	}, "both work, and one leads")
	assert.NotEqual(t, leaders[0].Load(), leaders[1].Load())
	list := &corev1.SecretList{}
	require.NoError(t, c.List(t.Context(), list, client.InNamespace(c.namespace)))
	assert.Len(t, list.Items, 20)
}

// elected is a runnable that needs leader election.
type elected struct{ leads *atomic.Bool }

func (e elected) Start(ctx context.Context) error {
	e.leads.Store(true)
	<-ctx.Done()
	return nil
}
