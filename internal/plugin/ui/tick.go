package ui

import (
	"context"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"nodekeeper.dev/internal/plugin/inspect"
)

const (
	// tickPeriod is how often a feed looks at what changes by itself: a replica is silent, a transaction
	// waits for long.
	tickPeriod = time.Second
	// ticksPerJudgement is how many ticks pass at most until a feed judges again.
	ticksPerJudgement = 5
	// flowPeriod is what one number of a flow counts, and flowLength how many numbers there are: two
	// minutes.
	flowPeriod = 2 * time.Second
	flowLength = 60
)

// replicaRow is a replica of a service, with its share of the nodes.
type replicaRow struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	Alive   bool   `json:"alive"`
	Standby bool   `json:"standby,omitempty"`
	Version string `json:"version,omitempty"`
	// Nodes is how many nodes a processor owns on the ring.
	Nodes int `json:"nodes"`
	// Share is how many percent of the nodes that is.
	Share float64 `json:"sharePercent"`
	// Problem says why its settings cannot be read.
	Problem string `json:"problem,omitempty"`
}

// flow counts transactions that come and go.
type flow struct {
	recorded, applied int // since slot
	slot              int64
	row               flowRow
}

// flowRow is how many transactions were recorded, and applied or otherwise removed, in each flowPeriod,
// the last one last.
type flowRow struct {
	Recorded []int `json:"recorded"`
	Applied  []int `json:"applied"`
}

// Run looks at what changes by itself, until ctx ends, which is no error.
func (f *Feed) Run(ctx context.Context) error {
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	for ticks := 0; ; ticks++ {
		select {
		case now := <-ticker.C:
			if ticks%ticksPerJudgement == 0 {
				f.age()
			}
			f.Tick(now)
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Feed) age() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = true
}

// Tick notes what is different at a time: health, replicas and their shares, the flow, and which watches
// work again.
func (f *Feed) Tick(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flowLocked(now)
	for what, p := range f.problems {
		if !p.solved.IsZero() && now.Sub(p.solved) >= settlePeriod {
			delete(f.problems, what)
			f.journal.Remove(kindProblem, what)
			f.stale = true
		}
	}
	if !f.stale || !f.cluster.Synced {
		return
	}
	f.stale = false
	survey := &inspect.Survey{Nodes: f.board.All()}
	for _, name := range slices.Sorted(maps.Keys(f.malformed)) { // always in the same order: what is alike is not sent again
		survey.Malformed = append(survey.Malformed, f.malformed[name])
	}
	survey.Pending = slices.SortedFunc(maps.Values(f.pending), func(a, b inspect.Pending) int { return a.Created.Compare(b.Created) })
	var leases []*coordinationv1.Lease
	if p, isBroken := f.problems[WatchedReplicas]; isBroken {
		survey.ReplicasUnknown = p.err
	} else {
		leases = slices.Collect(maps.Values(f.leases))
	}
	if f.Clock != nil { // Leases and transactions have times of the cluster
		now = f.Clock(now)
	}
	survey.Replicas = inspect.ReplicasOf(leases, now)
	f.replicasLocked(survey, inspect.ServersOf(leases, now))
	var health Health
	if p, isBroken := f.problems[WatchedNodes]; isBroken {
		health = Health{Unwell: []string{"it is unknown how nodekeeper is: " + shortened(p.err.Error())}, Stuck: []Stuck{}}
	} else {
		health = f.judge(survey, now)
	}
	for i := range health.Stuck {
		health.Stuck[i].Reason = shortened(health.Stuck[i].Reason)
	}
	f.put(kindMeta, metaHealth, health)
}

// replicasLocked notes the replicas, and how many nodes each processor owns.
func (f *Feed) replicasLocked(survey *inspect.Survey, servers *inspect.Servers) {
	owned := map[string]int{}
	for i := range survey.Nodes {
		owned[servers.Owner(survey.Nodes[i].Name)]++
	}
	gone := f.replicas
	f.replicas = map[string]bool{}
	for _, r := range survey.Replicas {
		row := replicaRow{Name: r.Name, Service: r.Service, Alive: r.IsAlive, Standby: r.IsStandby, Version: r.Version, Problem: r.SettingsProblem}
		if r.Service == inspect.ProcessorService && len(survey.Nodes) > 0 {
			row.Nodes = owned[r.Name]
			row.Share = float64(row.Nodes) * 100 / float64(len(survey.Nodes))
		}
		key := r.Service + "/" + r.Name
		f.replicas[key] = true
		delete(gone, key)
		f.put(kindReplica, key, row)
	}
	for key := range gone {
		f.journal.Remove(kindReplica, key)
	}
}

// flowLocked notes the counts of the periods that are over.
func (f *Feed) flowLocked(now time.Time) {
	slot := now.UnixNano() / int64(flowPeriod)
	w := &f.flow
	if len(w.row.Recorded) == 0 {
		w.row = flowRow{make([]int, flowLength), make([]int, flowLength)}
		w.slot = slot
	}
	for range min(slot-w.slot, flowLength) {
		w.row.Recorded = append(w.row.Recorded[1:], w.recorded)
		w.row.Applied = append(w.row.Applied[1:], w.applied)
		w.recorded, w.applied = 0, 0
	}
	w.slot = slot
	f.put(kindMeta, metaFlow, w.row)
}
