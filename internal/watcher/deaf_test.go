package watcher_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/watcher"
)

// deafSeat is a member that sees the Leases as they were at some time, and its own, too, as one
// does whose connection is cut.
type deafSeat struct {
	seat
	*ears
}

// ears are what a member hears. They are deaf while a test says so.
type ears struct {
	deaf atomic.Bool

	mu    sync.Mutex
	last  []watcher.Peer
	heard time.Time
}

func (s deafSeat) Heard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf.Load() {
		s.heard = time.Now()
	}
	return s.heard
}

func (s deafSeat) Peers() []watcher.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf.Load() {
		s.last = s.seat.Peers()
	}
	return s.last
}

// startBesideOneThatAnswers starts a watcher that can be made deaf. The other one answers questions,
// but not that it has passed.
func startBesideOneThatAnswers(t *testing.T) (all *company, me deafSeat, w *running) {
	t.Helper()
	all = newCompany()
	me = deafSeat{all.join("me"), &ears{}}
	all.join("other")
	all.change("other", func(p *watcher.Peer) { p.Annotations[watcher.AnswersKey] = "{}" })
	w = startListing(t, newAPIServer(state("a", "8", nil)), nil, func(cfg *watcher.Config) {
		cfg.Name, cfg.Members, cfg.Lease = "me", me, me
	})
	return all, me, w
}

// TestDeafWatcherTakesNobodyForSilent: the other watcher renews its Lease and answers all the
// time that it is not that far. This one does not hear it for eight seconds.
func TestDeafWatcherTakesNobodyForSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, me, w := startBesideOneThatAnswers(t)
		hear := func(seconds int) {
			for range seconds {
				all.change("other", func(*watcher.Peer) {})
				all.change("me", func(*watcher.Peer) {})
				time.Sleep(time.Second)
			}
		}
		hear(60)
		require.Error(t, w.ready(nil), "the other one is waited for")
		me.deaf.Store(true)
		hear(8)
		me.deaf.Store(false)
		hear(8)
		synctest.Wait()
		require.Error(t, w.ready(nil), "the other one was there all the time")
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		w.stop(t)
	})
}

// TestTwoSecondsOfDeafnessAreEnough: the other watcher renews every five seconds, as it does,
// and one of these renewals falls into two seconds in which the watch of Leases is cut.
func TestTwoSecondsOfDeafnessAreEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, me, w := startBesideOneThatAnswers(t)
		renew := func() { all.change("other", func(*watcher.Peer) {}) }
		for range 100 {
			renew()
			time.Sleep(5 * time.Second)
		}
		require.Error(t, w.ready(nil), "the other one is waited for")
		renew()
		time.Sleep(4500 * time.Millisecond)
		me.deaf.Store(true)
		time.Sleep(500 * time.Millisecond)
		renew()
		time.Sleep(1500 * time.Millisecond)
		me.deaf.Store(false)
		renew()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, w.ready(nil), "the other one was there all the time")
		w.stop(t)
	})
}
