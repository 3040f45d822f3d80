package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

var _ prometheus.Collector = (*Controller)(nil)

var (
	vreplicasDesc = prometheus.NewDesc("placement_vreplicas", "Virtual replicas of all resources: wanted, placed on a pod, pending without one, working, reported as stopping, and of resources that are reported as failing.", []string{"pool", "state"}, nil)
	podsDesc      = prometheus.NewDesc("placement_pods", "Pods by their Leases: open for work, closed, leaving, or ended.", []string{"pool", "state"}, nil)
	podsWanted    = prometheus.NewDesc("placement_pods_wanted", "Pods that the load of all resources needs at the pool's capacity, and one for each pod that has ended and occupies an ordinal of the StatefulSet.", []string{"pool"}, nil)
	contractBytes = prometheus.NewDesc("placement_contract_bytes_max", "Size of the largest contract. The limit is 921600.", []string{"pool"}, nil)
	behindDesc    = prometheus.NewDesc("placement_not_acknowledged_seconds_max", "Longest time for which a pod that renews its Lease has acknowledged no newer contract although there is one.", []string{"pool"}, nil)
)

// The reasons of moves.
const (
	lost       = "lost"
	drain      = "drain"
	rebalance  = "rebalance"
	overcommit = "overcommit"
	isNew      = "new"
)

// metrics are those of all pools that count what happens.
type metrics struct {
	moves  *prometheus.CounterVec
	passes prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_moves_total",
			Help: "Virtual replicas that decisions gave to a pod: new ones, and those of a pod that was lost, that drains, that had more than the others, or that was overcommitted.",
		}, []string{"pool", "reason"}),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_pass_seconds", Help: "Duration of a pass over a pool, with its requests.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
}

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{vreplicasDesc, podsDesc, podsWanted, contractBytes, behindDesc} {
		ch <- d
	}
	c.metrics.moves.Describe(ch)
	c.metrics.passes.Describe(ch)
	c.detector.Describe(ch)
}

// Collect implements prometheus.Collector. A pool has no values before its first pass, so only the
// leader has any.
func (c *Controller) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.loops {
		l.gauges.collect(l.label, ch)
	}
	c.metrics.moves.Collect(ch)
	c.metrics.passes.Collect(ch)
	c.detector.Collect(ch)
}

// poolLabels returns the label pool of each pool: its name, preceded by its namespace if another
// pool has the same name.
func poolLabels(pools []Pool) []string {
	count := map[string]int{}
	for i := range pools {
		count[pools[i].Name]++
	}
	all := make([]string, len(pools))
	for i := range pools {
		if all[i] = pools[i].Name; count[all[i]] > 1 {
			all[i] = pools[i].Namespace + "/" + pools[i].Name
		}
	}
	return all
}

// gauges are the values of a pool after its last pass. It is safe for concurrent use.
type gauges struct {
	mu     sync.Mutex
	latest *snapshot
}

type snapshot struct {
	vreplicas, pods map[string]int
	wanted          int32
	bytes           int
	behind          time.Time // since when, or zero
}

func (g *gauges) set(s *snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = s
}

func (g *gauges) collect(pool string, ch chan<- prometheus.Metric) {
	g.mu.Lock()
	s := g.latest
	g.mu.Unlock()
	if s == nil {
		return
	}
	send := func(d *prometheus.Desc, value float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{pool}, more...)...)
	}
	for state, n := range s.vreplicas {
		send(vreplicasDesc, float64(n), state)
	}
	for state, n := range s.pods {
		send(podsDesc, float64(n), state)
	}
	send(podsWanted, float64(s.wanted))
	send(contractBytes, float64(s.bytes))
	behind := 0.0
	if !s.behind.IsZero() {
		behind = time.Since(s.behind).Seconds()
	}
	send(behindDesc, behind)
}

// measure updates the gauges at the end of a pass.
func (p *pass) measure() {
	s := &snapshot{vreplicas: map[string]int{}, pods: map[string]int{"open": 0, "closed": 0, "leaving": 0, "ended": 0}}
	p.countVReplicas(s.vreplicas)
	for i := range p.pods {
		s.pods[stateNames[p.pods[i].State]]++
	}
	s.wanted = p.podsWanted()
	for _, v := range p.contracts {
		s.bytes = max(s.bytes, len(v.parsed.configMap.Data[contract.DataKey]))
	}
	for _, b := range p.behind {
		if s.behind.IsZero() || b.since.Before(s.behind) {
			s.behind = b.since
		}
	}
	p.gauges.set(s)
}

var stateNames = map[schedule.State]string{schedule.Open: "open", schedule.Closed: "closed", schedule.Leaving: "leaving", schedule.Ended: "ended"}

func (p *pass) countVReplicas(n map[string]int) {
	n["working"] = int(p.working)
	for _, state := range []string{"wanted", "placed", "pending", "stopping", "failing"} {
		n[state] = 0
	}
	for _, v := range p.resources {
		r, placed := v.parsed, 0
		n["wanted"] += int(r.wanted)
		for i := range r.status.Placement {
			share := &r.status.Placement[i]
			if share.Incarnation == "" || r.malformed != nil {
				continue
			}
			count := len(setOf(share).Below(r.wanted))
			placed += count
			if m := p.members[share.PodName]; m != nil && m.parsed.ack.Incarnation == share.Incarnation && m.parsed.ack.Fails(v.uid) {
				n["failing"] += count
			}
		}
		n["placed"] += placed
		n["pending"] += max(int(r.wanted)-placed, 0)
	}
	for _, v := range p.members {
		if v.parsed.ack.Incarnation != v.parsed.holder || v.parsed.holder == "" {
			continue
		}
		for _, indexes := range v.parsed.ack.Stopping {
			n["stopping"] += len(indexes)
		}
	}
}

// podsWanted returns the number of pods that the load needs. Only an ordinal of a StatefulSet is
// occupied by a pod that has ended.
func (p *pass) podsWanted() int32 {
	var items []schedule.Item
	for _, v := range p.resources {
		if v.parsed.isUsable() {
			items = append(items, schedule.Item{Replicas: v.parsed.wanted, Weight: v.parsed.weight})
		}
	}
	var ended []schedule.Pod
	for name, v := range p.members {
		if v.parsed.holder == "" && p.returns(name) {
			ended = append(ended, schedule.Pod{Name: name, State: schedule.Ended})
		}
	}
	return schedule.WantPods(p.policy(), ended, items)
}

// lag is a contract that its pod has not acknowledged.
type lag struct {
	incarnation string
	acked       int64     // the generation that the pod has acknowledged
	since       time.Time // when that was observed
}

// observeLags records which pods have not acknowledged their contracts.
func (p *pass) observeLags() {
	now := map[string]*lag{}
	for pod, v := range p.members {
		c := p.contracts[pod]
		if c == nil || !p.isHeld(v) || c.parsed.contract.Incarnation != v.parsed.holder {
			continue
		}
		next := &lag{incarnation: v.parsed.holder, since: p.now}
		if ack := &v.parsed.ack; ack.Incarnation == v.parsed.holder {
			if ack.Generation == c.parsed.contract.Generation && ack.Digest == c.parsed.digest {
				continue
			}
			if p.view(pod).Known() { // others are no progress, however high they are
				next.acked = ack.Generation
			}
		}
		if before := p.behind[pod]; before != nil && before.incarnation == next.incarnation && before.acked == next.acked {
			next = before
		}
		now[pod] = next
	}
	p.behind = now
}

// lagSteps are the durations in messages about pods that are behind, so that these messages change
// seldom.
var lagSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

// behindSince returns since when a pod has not acknowledged its contract, at a step of lagSteps, or
// zero if it has, or has had less than a second. The next pass comes at the next step.
func (p *pass) behindSince(pod string) time.Time {
	b := p.behind[pod]
	if b == nil {
		return time.Time{}
	}
	elapsed := p.now.Sub(b.since)
	i, _ := slices.BinarySearch(lagSteps, elapsed+1)
	if i < len(lagSteps) {
		p.wake(lagSteps[i] - elapsed)
	}
	if i == 0 {
		return time.Time{}
	}
	return p.now.Add(-lagSteps[i-1])
}

// move is the way of virtual replicas of one resource. Its from is empty for new ones.
type move struct{ from, to, reason string }

// moves returns how many virtual replicas a decision gives to other pods. The states of the pods
// are those from which it was made.
func (p *pass) moves(c *change) map[move]int {
	former, all := map[int32]string{}, map[move]int{}
	for i := range c.version.parsed.status.Placement {
		share := &c.version.parsed.status.Placement[i]
		for _, index := range setOf(share) {
			former[index] = share.PodName
		}
	}
	for i := range c.status.Placement {
		share := &c.status.Placement[i]
		for _, index := range setOf(share) {
			if from := former[index]; from != share.PodName {
				all[move{from, share.PodName, p.reasonOf(c, from)}]++
			}
		}
	}
	return all
}

// reasonOf returns why virtual replicas of a resource leave a pod.
func (p *pass) reasonOf(c *change, from string) string {
	state, known := p.states[from]
	switch {
	case from == "":
		return isNew
	case !known, state == schedule.Ended:
		return lost
	case state == schedule.Leaving:
		return drain
	case p.rebalanced[origin{string(c.version.uid), from}]:
		return rebalance
	}
	return overcommit
}

// origin is where a rebalanced virtual replica was.
type origin struct{ item, pod string }

// countMoves counts what a decision that was written moves, and returns it in a fixed order.
func (p *pass) countMoves(c *change) (order []move, counts map[move]int) {
	counts = p.moves(c)
	for m, n := range counts {
		p.metrics.moves.WithLabelValues(p.label, m.reason).Add(float64(n))
	}
	return slices.SortedFunc(maps.Keys(counts), compareMoves), counts
}
