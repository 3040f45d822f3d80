package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"nodekeeper.dev/placement/contract"
)

// scene is an agent that works on one virtual replica. It must be used in a bubble of synctest.
type scene struct {
	*fake.Clientset

	t         *testing.T
	agent     *agent
	away      atomic.Bool  // of the API server
	refuses   atomic.Bool  // renewals of the Lease
	suspended atomic.Int64 // for how long the machine was suspended
	working   atomic.Int32
	end       context.CancelFunc
	ended     chan error
}

// newScene starts the agent, after prepare.
func newScene(t *testing.T, prepare ...func(*scene)) *scene {
	t.Helper()
	s := &scene{Clientset: fake.NewClientset(), t: t, ended: make(chan error, 1)}
	s.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return s.away.Load(), nil, errors.New("connection refused")
	})
	o, err := Options{Namespace: "n", Pool: "p", Pod: "w-0", PodUID: "u"}.completed()
	require.NoError(t, err)
	begin := time.Now()
	s.agent = &agent{
		Options: o, leases: s.CoordinationV1(), configMaps: s.CoreV1(),
		now: func() time.Duration { return time.Since(begin) + time.Duration(s.suspended.Load()) },
		worker: workerFunc(func(ctx context.Context, _ Replica, ready func()) error {
			s.working.Add(1)
			defer s.working.Add(-1)
			ready()
			<-ctx.Done()
			return nil
		}),
	}
	for _, do := range prepare {
		do(s)
	}
	var ctx context.Context
	ctx, s.end = context.WithCancel(t.Context())
	go func() { s.ended <- s.agent.run(ctx) }()
	return s
}

func (s *scene) holder() string {
	s.t.Helper()
	l, err := s.CoordinationV1().Leases("n").Get(s.t.Context(), "w-0", metav1.GetOptions{})
	require.NoError(s.t, err)
	return holderOf(l)
}

// grant makes the contract list the virtual replica, and waits until it is worked on.
func (s *scene) grant() {
	s.t.Helper()
	synctest.Wait()
	c := contract.Contract{Incarnation: s.holder(), Generation: 1, Entries: []contract.Entry{{
		Reference: contract.Reference{UID: "q"}, Decision: 1, Changed: 1, Of: 1, Replicas: map[int32]int64{0: 1},
	}}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w-0"}, Data: map[string]string{contract.DataKey: string(c.Encode())}}
	_, err := s.CoreV1().ConfigMaps("n").Create(s.t.Context(), cm, metav1.CreateOptions{})
	require.NoError(s.t, err)
	time.Sleep(time.Second)
	require.EqualValues(s.t, 1, s.working.Load())
}

// cutOff runs a test of an agent that works on one virtual replica and no longer reaches the API
// server.
func cutOff(t *testing.T, test func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.grant()
		s.away.Store(true)
		test(s)
	})
}

// TestKeptWorkIsStoppedByAContract, and goes on until then, although the Lease is not renewed.
func TestKeptWorkIsStoppedByAContract(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, func(s *scene) {
			s.agent.OnLostLease = Keep
			s.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return s.refuses.Load(), nil, errors.New("refused")
			})
		})
		s.grant()
		holder := s.holder()
		s.refuses.Store(true)
		s.suspended.Store(int64(time.Hour))
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, s.working.Load())
		cms := s.CoreV1().ConfigMaps("n")
		cm, err := cms.Get(t.Context(), "w-0", metav1.GetOptions{})
		require.NoError(t, err)
		empty := contract.Contract{Incarnation: holder, Generation: 2}
		cm.Data[contract.DataKey] = string(empty.Encode())
		_, err = cms.Update(t.Context(), cm, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Zero(t, s.working.Load())
		s.refuses.Store(false)
		s.end()
		require.NoError(t, <-s.ended)
		assert.Empty(t, s.holder())
	})
}

// TestKeptWorkEndsWithTheProgram, which fails if the API server does not answer.
func TestKeptWorkEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, func(s *scene) { s.agent.OnLostLease = Keep })
		s.grant()
		s.away.Store(true)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, s.working.Load())
		s.end()
		require.ErrorContains(t, <-s.ended, "releasing the Lease")
		assert.Zero(t, s.working.Load())
	})
}

// TestSuspendedTimeCounts: the clock of the controller has gone on.
func TestSuspendedTimeCounts(t *testing.T) {
	t.Parallel()
	cutOff(t, func(s *scene) {
		s.suspended.Store(int64(time.Hour))
		time.Sleep(time.Second) // the step of timers
		synctest.Wait()
		assert.Zero(s.t, s.working.Load())
		s.away.Store(false)
		s.end()
		require.NoError(s.t, <-s.ended)
	})
}

// TestAgentReleasesWhatItHasLost: its Workers have returned, and the Lease names it still.
func TestAgentReleasesWhatItHasLost(t *testing.T) {
	t.Parallel()
	cutOff(t, func(s *scene) {
		time.Sleep(time.Minute)
		assert.Zero(s.t, s.working.Load())
		s.end()
		s.away.Store(false)
		require.NoError(s.t, <-s.ended)
		assert.Empty(s.t, s.holder())
	})
}

// TestAgentThatCannotReleaseFails: exit code 0 means that the Lease is released.
func TestAgentThatCannotReleaseFails(t *testing.T) {
	t.Parallel()
	cutOff(t, func(s *scene) {
		s.end()
		require.ErrorContains(s.t, <-s.ended, "releasing the Lease")
		s.away.Store(false)
		assert.NotEmpty(s.t, s.holder())
	})
}

// TestRetriesOfTheWatchComeLaterAndLater.
func TestRetriesOfTheWatchComeLaterAndLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var tries []time.Duration
		s := newScene(t, func(s *scene) {
			s.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				tries = append(tries, time.Since(begin)/(100*time.Millisecond))
				return true, nil, errors.New("refused")
			})
		})
		time.Sleep(17 * time.Second)
		s.end()
		require.NoError(t, <-s.ended)
		assert.Equal(t, []time.Duration{0, 2, 6, 14, 30, 62, 112, 162}, tries)
	})
}
