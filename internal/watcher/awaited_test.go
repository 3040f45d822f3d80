package watcher_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/barrier"
)

// One event of one node cannot be stored, and another watcher that starts waits for it. Other nodes
// send heartbeats.
func TestAwaitedWatcherKeepsItsBackoff(t *testing.T) {
	for name, asked := range map[string]bool{"control: not awaited": false, "awaited": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newCompany()
				me := all.join("me")
				from := newAPIServer(state("a", "8", nil))
				refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create, Name: txn.NodeHash("node-1") + ".110"}}}
				w := startIn(t, &me, from, nil, refused)
				time.Sleep(time.Second)
				watch := <-from.watches
				watch.Modify(sent(state("a", "110", set{"rack": "r7"})))
				time.Sleep(10 * time.Second)
				if asked {
					all.join("other")
					all.change("other", func(p *barrier.Peer) {
						p.Annotations[barrier.AsksKey] = `[{"number":7,"list":"110","newest":"110","digest":"00"}]`
					})
				}
				before := refused.Hits()
				const seconds, perSecond = 10, 50
				for i := range seconds * perSecond { // as of 500 nodes, every ten seconds
					beat := state("b", strconv.Itoa(200+i), nil)
					beat.Name = "node-2"
					if i == 0 {
						watch.Add(sent(beat))
					} else {
						watch.Modify(sent(beat))
					}
					time.Sleep(time.Second / perSecond)
					synctest.Wait()
				}
				t.Logf("%d requests for one node in %d s", refused.Hits()-before, seconds)
				assert.LessOrEqual(t, refused.Hits()-before, 2*seconds)
				refused.End()
				time.Sleep(5 * time.Second)
				w.stop(t)
			})
		})
	}
}
