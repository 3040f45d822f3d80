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
	"nodekeeper.dev/internal/watcher/barrier"
)

// deafSeat is a member whose connection can be cut: it then sees all Leases, including its own, as
// they were.
type deafSeat struct {
	seat
	*ears
}

// ears are a member's view of the others. They can be made deaf.
type ears struct {
	deaf atomic.Bool

	mu    sync.Mutex
	last  []barrier.Peer
	heard time.Time
}

func (s deafSeat) SyncedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf.Load() {
		s.heard = time.Now()
	}
	return s.heard
}

func (s deafSeat) Peers() []barrier.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf.Load() {
		s.last = s.seat.Peers()
	}
	return s.last
}

// startBesideAnsweringPeer starts a watcher that can be made deaf. The other one answers
// questions, but only with NotYet.
func startBesideAnsweringPeer(t *testing.T) (all *company, me deafSeat, w *running) {
	t.Helper()
	all = newCompany()
	me = deafSeat{all.join("me"), &ears{}}
	all.join("other")
	all.change("other", func(p *barrier.Peer) { p.Annotations[barrier.AnswersKey] = "{}" })
	w = startListing(t, newAPIServer(state("a", "8", nil)), nil, func(cfg *watcher.Config) {
		cfg.Name, cfg.Members, cfg.Lease = "me", me, me
	})
	return all, me, w
}

// The other watcher renews its Lease and keeps answering that it is behind. This one does not see
// that for thirteen seconds.
func TestDeafWatcherTreatsNoPeerAsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, me, w := startBesideAnsweringPeer(t)
		hear := func(seconds int) {
			for range seconds {
				all.change("other", func(*barrier.Peer) {})
				all.change("me", func(*barrier.Peer) {})
				time.Sleep(time.Second)
			}
		}
		hear(60)
		require.Error(t, w.ready(nil), "the other one is waited for")
		me.deaf.Store(true)
		hear(13)
		me.deaf.Store(false)
		hear(13)
		synctest.Wait()
		require.Error(t, w.ready(nil), "the other one was there all the time")
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		w.stop(t)
	})
}

// The other watcher renews every ten seconds, as slowly as it can, and one of these renewals falls
// into two seconds in which the watch of Leases is cut.
func TestTwoSecondsOfDeafnessAreEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, me, w := startBesideAnsweringPeer(t)
		renew := func() { all.change("other", func(*barrier.Peer) {}) }
		for range 100 {
			renew()
			time.Sleep(10 * time.Second)
		}
		require.Error(t, w.ready(nil), "the other one is waited for")
		renew()
		time.Sleep(9500 * time.Millisecond)
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
