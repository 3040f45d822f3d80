package ui

import (
	"context"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/plugin/inspect"
)

const (
	// tickPeriod is the time between two updates of state that changes with time alone, such as
	// silent replicas and stuck transactions.
	tickPeriod = time.Second
	// ticksPerJudgement bounds the ticks between two evaluations of the health.
	ticksPerJudgement = 5
	// flowPeriod is the period of one count of a flow, and flowLength the number of counts: two
	// minutes in all.
	flowPeriod = 2 * time.Second
	flowLength = 60
)

// replicaRow is a replica of a service, with its share of the nodes.
type replicaRow struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	Alive   bool   `json:"alive"`
	Standby bool   `json:"standby,omitempty"`
	// Ready is as status counts it.
	Ready bool `json:"ready"`
	// Silence is how long ago it was last heard if it is alive, but has not renewed its Lease in
	// time.
	Silence string `json:"silence,omitempty"`
	Version string `json:"version,omitempty"`
	// Nodes is the number of nodes that a processor owns on the ring.
	Nodes int `json:"nodes"`
	// Share is the percentage of all nodes.
	Share float64 `json:"sharePercent"`
	// Problem is the parse error of its settings.
	Problem string `json:"problem,omitempty"`
}

// flow counts transactions that are added and removed.
type flow struct {
	recorded, applied int // since slot
	slot              int64
	row               flowRow
}

// flowRow has the numbers of transactions that were recorded, and that were applied or otherwise
// removed, in each flowPeriod, the latest last.
type flowRow struct {
	Recorded []int `json:"recorded"`
	Applied  []int `json:"applied"`
}

// Run updates state that changes with time, until ctx ends. It returns nil then.
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

// Tick updates the state at a time: health, replicas and their shares, the flow, and watches that
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
	for _, name := range slices.Sorted(maps.Keys(f.malformed)) { // in a fixed order, so that equal results are not sent again
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
		health = Health{Unwell: []string{"the state of nodekeeper is unknown: " + shortened(p.err.Error())}, Stuck: []Stuck{}}
	} else {
		health = f.assess(survey, now)
	}
	for i := range health.Stuck {
		health.Stuck[i].Reason = shortened(health.Stuck[i].Reason)
	}
	f.put(kindMeta, metaHealth, health)
}

// replicasLocked updates the replicas, with the number of nodes that each processor owns.
func (f *Feed) replicasLocked(survey *inspect.Survey, servers *inspect.Servers) {
	owned := map[string]int{}
	for i := range survey.Nodes {
		owned[servers.Owner(survey.Nodes[i].Name)]++
	}
	gone := f.replicas
	f.replicas = map[string]bool{}
	for _, r := range survey.Replicas {
		row := replicaRow{Name: r.Name, Service: r.Service, Alive: r.IsAlive, Standby: r.IsStandby, Ready: r.Ready(), Version: r.Version, Problem: r.SettingsProblem}
		if r.Silent() {
			row.Silence = duration.HumanDuration(r.Silence)
		}
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

// flowLocked updates the counts of completed periods.
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
