package watcher_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
)

func TestLoneWatcherRecordsAtOnce(t *testing.T) {
	for name, seated := range map[string]bool{"in no company": false, "the only member": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *seat
				if seated {
					one := newCompany().join("me")
					s = &one
				}
				w := startIn(t, s, newAPIServer(state("a", "8", nil)), nil)
				time.Sleep(latency)
				synctest.Wait()
				require.NoError(t, w.ready(nil))
				assert.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")))
				w.stop(t)
			})
		})
	}
}

// The others have already stored everything, which is the normal case, and their answers take one
// write.
func TestWatcherWithPeersRecordsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newCompany()
		from := newAPIServer(state("a", "8", nil))
		first, second := all.join("first"), all.join("second")
		w1 := startIn(t, &first, from, nil)
		w2 := startIn(t, &second, from, w1.client)
		time.Sleep(time.Minute)
		third := all.join("third")
		w3 := startIn(t, &third, from, w1.client)
		begin := time.Now()
		for w3.ready(nil) != nil {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		assert.LessOrEqual(t, time.Since(begin), 200*time.Millisecond)
		time.Sleep(10 * latency)
		for _, name := range []string{"first", "second", "third"} {
			assert.Empty(t, all.questions(t, name), "%s has nothing to ask any more", name)
			assert.True(t, all.serves(name))
		}
		for _, w := range []*running{w1, w2, w3} {
			w.stop(t)
		}
	})
}

// inCompany runs a watcher with one other member, which answers on request of the test.
func inCompany(t *testing.T, from *apiServer, test func(all *company, w *running), fault ...faults.Fault) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newCompany()
		me := all.join("me")
		all.join("other")
		renewed, end := context.WithCancel(t.Context())
		go func() {
			for renewed.Err() == nil {
				all.change("other", func(*barrier.Peer) {})
				time.Sleep(5 * time.Second)
			}
		}()
		all.change("other", func(p *barrier.Peer) { p.Annotations[barrier.AnswersKey] = "{}" })
		w := startIn(t, &me, from, nil, fault...)
		time.Sleep(2 * latency)
		synctest.Wait()
		defer func() {
			w.stop(t)
			end()
			time.Sleep(5 * time.Second)
		}()
		test(all, w)
	})
}

func TestStartWaitsForPeers(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		(<-from.watches).Delete(sent(state("a", "109", nil))) // observed after the list, on which it still builds
		time.Sleep(time.Hour)
		require.Error(t, w.ready(nil))
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		assert.False(t, all.serves("me"))

		all.answer(t, barrier.Alike)
		assert.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")),
			"a node may have come and gone before the list: what comes after it waits until the other one has passed")
		assert.True(t, all.serves("me"))

		all.answer(t, barrier.Passed)
		assert.Equal(t, []string{"added a@8", "deleted a@109"}, summary(queued(t, w.client, transactions, "node-1")))
	})
}

func TestWatcherDoesNotWaitForGonePeers(t *testing.T) {
	inCompany(t, newAPIServer(state("a", "8", nil)), func(all *company, w *running) {
		require.Error(t, w.ready(nil))
		all.change("other", func(p *barrier.Peer) { p.Gone = true })
		synctest.Wait()
		require.NoError(t, w.ready(nil))
	})
}

func TestWaitForSilentPeerIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		renews  time.Duration // between two changes of its Lease
		answers bool
		want    bool // whether the watcher waits for it
	}{
		"neither renews nor answers":            {renews: 0, answers: true, want: false},
		"of a version that does not answer":     {renews: 5 * time.Second, answers: false, want: false},
		"slow":                                  {renews: 5 * time.Second, answers: true, want: true},
		"every renewal is answered at the last": {renews: 10 * time.Second, answers: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newCompany()
				me := all.join("me")
				all.join("other")
				if tc.answers {
					all.change("other", func(p *barrier.Peer) { p.Annotations[barrier.AnswersKey] = "{}" })
				}
				w := startIn(t, &me, newAPIServer(state("a", "8", nil)), nil)
				for range 10 {
					if tc.renews > 0 {
						all.change("other", func(*barrier.Peer) {})
					}
					time.Sleep(max(tc.renews, watcher.DefaultSilence))
				}
				synctest.Wait()
				assert.Equal(t, tc.want, w.ready(nil) != nil)
				w.stop(t)
			})
		})
	}
}

// gap makes a watcher that has recorded everything list again, and see another incarnation.
func gap(t *testing.T, from *apiServer, all *company, w *running) {
	t.Helper()
	all.answer(t, barrier.Passed)
	first := <-from.watches
	time.Sleep(time.Minute)
	require.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")))
	first.Modify(sent(state("a", "110", nil))) // its last state is not a queued transaction
	synctest.Wait()
	from.becomes(state("b", "115", nil))
	expire(first)
	<-from.watches // the list has been returned
	synctest.Wait()
}

// A list shows the state at the time of its response, not of its request.
func TestConclusionsFromSlowListWait(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		from.slow = 6 * time.Second
		gap(t, from, all, w)
		time.Sleep(time.Hour)
		assert.Len(t, queued(t, w.client, transactions, "node-1"), 1)
		assert.False(t, all.serves("me"), "it gives its share up while it may not conclude")
		all.answer(t, barrier.Alike)
		assert.Equal(t, []string{"added a@8", "deleted a@110", "added b@115"}, summary(queued(t, w.client, transactions, "node-1")))
		assert.True(t, all.serves("me"))
	})
}

// slowSeat is a member that takes a while to publish that it serves.
type slowSeat struct{ seat }

func (s slowSeat) SetServing(serving bool) {
	if serving {
		time.Sleep(3 * time.Second)
	}
	s.seat.SetServing(serving)
}

// The later of two changes counts.
func TestRelistWhileClaimingShareReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newCompany()
		me := slowSeat{all.join("me")}
		from := newAPIServer(state("a", "8", nil))
		w := startListing(t, from, nil, func(cfg *watcher.Config) { cfg.Name, cfg.Members, cfg.Lease = "me", me, me })
		time.Sleep(time.Second)
		all.join("other")
		from.becomes(state("a", "115", nil))
		expire(<-from.watches)
		time.Sleep(4 * time.Second)
		assert.False(t, all.serves("me"), "the other one has not answered")
		all.answer(t, barrier.Passed)
		time.Sleep(4 * time.Second)
		assert.True(t, all.serves("me"))
		w.stop(t)
	})
}

// The next event checks its own barrier.
func TestFlushInProgressWaitsForNewBarrier(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	slow := &faults.Slow{Calls: faults.Calls{Verb: faults.Create, Skip: 1, Times: 1}, Delay: 3 * time.Second}
	inCompany(t, from, func(all *company, w *running) {
		all.answer(t, barrier.Passed)
		first := <-from.watches
		time.Sleep(time.Minute)
		first.Modify(sent(state("a", "109", set{"rack": "r7"}))) // its write takes three seconds
		first.Modify(sent(state("a", "110", set{"rack": "r7"})))
		synctest.Wait()
		from.becomes(state("b", "115", nil))
		expire(first)
		<-from.watches
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"added a@8", "updated a@109"}, summary(queued(t, w.client, transactions, "node-1")))
		all.answer(t, barrier.Passed)
		assert.Len(t, queued(t, w.client, transactions, "node-1"), 4)
	}, slow)
}

// The running watchers may know better.
func TestShutdownStoresNoConclusionsBeforeTheirBarrier(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		gap(t, from, all, w)
		w.stop(t)
		assert.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")))
		w.done <- nil // for the end of the test
	})
}

// Events received before the second list are stored when their own barrier has passed.
func TestSecondListDoesNotReplaceTheFirstBarrier(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		first := <-from.watches
		first.Modify(sent(state("a", "109", set{"rack": "r7"})))
		first.Modify(sent(state("a", "110", set{"rack": "r7"})))
		synctest.Wait()
		from.becomes(state("b", "115", nil))
		expire(first)
		<-from.watches
		time.Sleep(time.Second)
		asked := all.questions(t, "me")
		require.Len(t, asked, 2)
		assert.Equal(t, "100", asked[0].List.String())
		assert.Equal(t, "120", asked[1].List.String())
		all.answer(t, barrier.Passed)
		assert.Equal(t, []string{"added a@8", "updated a@109", "deleted a@110", "added b@115"}, summary(queued(t, w.client, transactions, "node-1")))
	})
}

// A restore happened in the gap, and a user has reverted it.
func TestHiddenChangeIsFoundAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newAPIServer(state("b", "15", nil))
		c := faults.Fake().Build()
		w := startIn(t, nil, from, c)
		first := <-from.watches
		time.Sleep(time.Minute)
		require.Equal(t, []string{"added b@15"}, summary(queued(t, c, transactions, "node-1")))
		saved := record.Record{
			Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("8"), Source: "a",
			Restored: record.Restoration{UID: "b", Revision: revision.MustParse("112")},
		}
		require.NoError(t, c.Create(t.Context(), saved.ConfigMap(records)))
		from.becomes(state("b", "115", nil))
		expire(first)
		<-from.watches
		time.Sleep(time.Second)
		assert.Equal(t, []string{"added b@15", "updated b@115"}, summary(queued(t, c, transactions, "node-1")))
		w.stop(t)
	})
}

// The barrier passes seconds later, and the watch may have been interrupted in between.
func TestHiddenChangeHasTimeOfList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newCompany()
		me := all.join("me")
		from := newAPIServer(state("b", "15", nil))
		w := startIn(t, &me, from, nil)
		first := <-from.watches
		time.Sleep(time.Minute)
		require.Equal(t, []string{"added b@15"}, summary(queued(t, w.client, transactions, "node-1")))
		all.join("other")
		from.becomes(state("b", "115", nil))
		expire(first)
		<-from.watches
		synctest.Wait()
		listed := time.Now()
		time.Sleep(3 * time.Second)
		require.Len(t, queued(t, w.client, transactions, "node-1"), 1, "it waits for the other one")
		all.answer(t, barrier.Passed)
		found := queued(t, w.client, transactions, "node-1")
		require.Equal(t, []string{"added b@15", "added b@115"}, summary(found), "there is no record")
		assert.WithinDuration(t, listed, found[1].ObservedAt, time.Millisecond)
		w.stop(t)
	})
}

// The owner may be waiting.
func TestAwaitedWatcherLeavesNothingToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newCompany()
		me := all.join("me")
		w := startConfigured(t, faults.Fake().Build(), &informer{}, func(cfg *watcher.Config) {
			cfg.Name, cfg.Members, cfg.Lease, cfg.Ring = "me", me, me, rank(3)
		})
		time.Sleep(2 * latency)
		synctest.Wait()
		w.OnAdd(state("a", "8", nil), false)
		synctest.Wait()
		require.Zero(t, count(t, w.client))
		all.join("other")
		all.change("other", func(p *barrier.Peer) {
			p.Annotations[barrier.AsksKey] = `[{"number":7,"list":"9","newest":"8","digest":"00"}]`
		})
		synctest.Wait()
		assert.Equal(t, 1, count(t, w.client))
		w.stop(t)
	})
}

// named returns a state of a node with another name.
func named(name, uid, rv string) *nodeview.Node {
	n := state(types.UID(uid), rv, nil)
	n.Name = name
	return n
}

// Another watcher cannot store what it observed of one node.
func TestOnlyTheNodesThatAnAnswerNamesAreHeldBack(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		nodes := <-from.watches
		nodes.Add(sent(named("node-2", "x", "109")))
		nodes.Modify(sent(state("a", "110", set{"rack": "r7"})))
		synctest.Wait()
		require.Error(t, w.ready(nil))

		all.answerExcept(t, barrier.Alike, "node-1")
		require.NoError(t, w.ready(nil))
		assert.True(t, all.serves("me"))
		assert.Empty(t, queued(t, w.client, transactions, "node-2"), "the other one may have seen an earlier incarnation")

		all.answerExcept(t, barrier.Passed, "node-1")
		assert.Equal(t, []string{"added x@109"}, summary(queued(t, w.client, transactions, "node-2")))
		nodes.Delete(sent(named("node-2", "x", "111")))
		synctest.Wait()
		assert.Len(t, queued(t, w.client, transactions, "node-2"), 2)
		assert.Empty(t, queued(t, w.client, transactions, "node-1"), "neither the conclusion nor what was observed since")
		assert.NotEmpty(t, all.questions(t, "me"), "it still asks")

		all.answer(t, barrier.Passed)
		assert.Equal(t, []string{"added a@8", "updated a@110"}, summary(queued(t, w.client, transactions, "node-1")))
		time.Sleep(latency)
		synctest.Wait()
		assert.Empty(t, all.questions(t, "me"))
	})
}

// Of a node that another watcher holds back, the second list is compared when it is free, too.
func TestConclusionsFromAGapWaitForNamedNodes(t *testing.T) {
	from := newAPIServer(state("a", "8", nil))
	inCompany(t, from, func(all *company, w *running) {
		gap(t, from, all, w)
		time.Sleep(time.Second)
		all.answerExcept(t, barrier.Passed, "node-1")
		assert.True(t, all.serves("me"))
		time.Sleep(time.Hour)
		assert.Len(t, queued(t, w.client, transactions, "node-1"), 1)
		all.answerExcept(t, barrier.Passed)
		assert.Equal(t, []string{"added a@8", "deleted a@110", "added b@115"}, summary(queued(t, w.client, transactions, "node-1")))
	})
}

// held returns the nodes that a member's answers do not include, and its answers to "other".
func (c *company) held(t *testing.T, name string) (nodes []string, answers map[string]barrier.Answer) {
	t.Helper()
	var stored struct {
		Held    []string
		Answers map[string]map[string]barrier.Answer
	}
	if text := c.annotation(name, barrier.HeldKey); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &stored))
	}
	return stored.Held, stored.Answers["other"]
}

// The writes of all nodes of a group are refused. A former release reads the annotation of whole
// answers only, so it waits.
func TestAnswersNameTheNodesThatCannotBeStored(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		want  barrier.Answer
	}{"a few": {16, barrier.Passed}, "too many": {17, barrier.NotYet}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newCompany()
				me := all.join("me")
				from := newAPIServer(state("a", "8", nil))
				refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create, Skip: 1}}}
				w := startIn(t, &me, from, nil, refused)
				nodes := <-from.watches
				for i := range tc.nodes {
					nodes.Add(sent(named("held-"+strconv.Itoa(i), "h"+strconv.Itoa(i), strconv.Itoa(109+i))))
				}
				nodes.Modify(sent(state("a", "200", nil))) // so that everything before is observed
				synctest.Wait()
				all.join("other")
				all.change("other", func(p *barrier.Peer) {
					p.Annotations[barrier.AsksKey] = `[{"number":7,"list":"150","newest":"149","digest":"00"}]`
				})
				time.Sleep(2 * latency)
				synctest.Wait()
				held, _ := all.held(t, "me")
				assert.Empty(t, held, "most events are stored within a second")
				time.Sleep(3 * time.Second)
				synctest.Wait()
				held, answers := all.held(t, "me")
				assert.Equal(t, tc.want, answers["7"])
				if tc.want == barrier.Passed {
					assert.Len(t, held, tc.nodes)
				}
				assert.JSONEq(t, `{"other":{"7":0}}`, all.annotation("me", barrier.AnswersKey))
				refused.End()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				assert.Empty(t, all.annotation("me", barrier.HeldKey))
				assert.JSONEq(t, `{"other":{"7":2}}`, all.annotation("me", barrier.AnswersKey))
				w.stop(t)
			})
		})
	}
}
