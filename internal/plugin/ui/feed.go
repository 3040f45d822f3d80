package ui

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/queue"
)

// The kinds of entries.
const (
	kindNode        = "node"        // nodeRow, by name
	kindTransaction = "transaction" // transactionRow, by the name of the ConfigMap
	kindHappening   = "happening"   // happeningRow, by an increasing number
	kindReplica     = "replica"     // replicaRow, by service and name
	kindProblem     = "problem"     // problemRow, by subject
	kindMeta        = "meta"        // clusterRow, Health and flowRow, by the keys below
)

// The subjects of watches, for [Feed.Problem] and the page.
const (
	WatchedNodes    = "nodes" // with their records and transactions
	WatchedReplicas = "replicas"
)

// The keys of kindMeta.
const (
	metaCluster = "cluster"
	metaHealth  = "health"
	metaFlow    = "flow"
)

const (
	// maxHappenings bounds the happenings on the page.
	maxHappenings = 200
	// maxText bounds texts that quote objects of others.
	maxText = 300
	// settlePeriod is the time for which a watch that works again still counts as broken, until it
	// has delivered the missed changes.
	settlePeriod = 2 * time.Second
)

// nodeRow is a node in the list.
type nodeRow struct {
	inspect.Summary

	// Revision changes with any part of the node that the page shows.
	Revision string `json:"revision"`
}

type transactionRow struct {
	// Node is empty for a malformed ConfigMap that does not name a node.
	Node    string    `json:"node"`
	Type    string    `json:"type"`
	Version string    `json:"version"`
	UID     string    `json:"uid"`
	Labels  int       `json:"labels"`
	Created time.Time `json:"created"`
	// Problem is the parse error of a malformed ConfigMap.
	Problem string `json:"problem,omitempty"`
}

type happeningRow struct {
	inspect.Happening

	At time.Time `json:"at"`
}

type problemRow struct {
	Text string `json:"text"`
}

type clusterRow struct {
	Name string `json:"name"`
	// Synced reports whether all initial objects are in the journal.
	Synced bool `json:"synced"`
}

// Health is the health of nodekeeper.
type Health struct {
	// Unwell has the reasons why nodekeeper does not work. It is empty if all is well.
	Unwell []string `json:"unwell"`
	// Stuck has the objects that need manual intervention.
	Stuck []Stuck `json:"stuck"`
	// StuckTotal is their number, including objects that Stuck omits to stay short.
	StuckTotal int `json:"stuckTotal"`
}

// Stuck is an object that needs manual intervention.
type Stuck struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Advice string `json:"advice"`
}

// Feed fills a journal with the results of watches. It is safe for concurrent use. It keeps the
// labels of objects, which the caller must not change.
type Feed struct {
	// Clock converts a local time to that of the cluster. Nil means that the clocks agree. Set it
	// before the feed is used.
	Clock func(time.Time) time.Time

	journal *Journal
	// assess returns the health at a time of the cluster.
	assess func(*inspect.Survey, time.Time) Health

	mu         sync.Mutex
	cluster    clusterRow
	board      *inspect.Board
	nodes      map[string]nodeState
	pending    map[string]inspect.Pending // by the name of the ConfigMap
	malformed  map[string]inspect.Malformed
	leases     map[string]*coordinationv1.Lease
	problems   map[string]problem // by subject
	happenings int
	replicas   map[string]bool // the keys in the journal
	flow       flow
	// stale reports whether the health and the shares in the journal may be outdated.
	stale bool
}

// problem is the last error of a watch.
type problem struct {
	err error
	// solved is the time since which it works again, or zero.
	solved time.Time
}

// nodeState is the state of a node besides its summary.
type nodeState struct {
	live, saved apilabels.Set // nil without a Node or a record
	liveSum     uint64
	savedAt     string // the resourceVersion of the record
}

var seed = maphash.MakeSeed()

// NewFeed returns a feed that fills the journal. Cluster is the name on the page, and assess
// returns the health of nodekeeper.
func NewFeed(journal *Journal, cluster string, assess func(*inspect.Survey, time.Time) Health) *Feed {
	f := &Feed{
		journal: journal, assess: assess, cluster: clusterRow{Name: cluster}, board: inspect.NewBoard(apilabels.Everything()),
		nodes: map[string]nodeState{}, pending: map[string]inspect.Pending{}, malformed: map[string]inspect.Malformed{},
		leases: map[string]*coordinationv1.Lease{}, problems: map[string]problem{},
	}
	f.put(kindMeta, metaCluster, f.cluster)
	return f
}

// put sets an entry.
func (f *Feed) put(kind, key string, value any) {
	_ = f.journal.Set(kind, key, value) // rows can always be encoded
}

// Synced reports to the page that all initial objects were passed.
func (f *Feed) Synced(now time.Time) {
	f.mu.Lock()
	f.cluster.Synced, f.stale = true, true
	for name := range f.nodes {
		f.rowLocked(name)
	}
	f.put(kindMeta, metaCluster, f.cluster)
	f.mu.Unlock()
	f.Tick(now)
}

// Node updates a Node; nil means that it does not exist. Initial Nodes cause no happening.
func (f *Feed) Node(before, after *metav1.PartialObjectMetadata, isInitial bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := nameOf(before, after)
	k := f.nodes[name]
	if after == nil {
		f.board.RemoveNode(name)
		k.live, k.liveSum = nil, 0
	} else {
		f.board.SetNode(after)
		k.live, k.liveSum = orEmpty(after.Labels), sumOf(after)
	}
	f.nodes[name] = k
	f.rowLocked(name)
	if h, ok := inspect.NodeHappened(before, after); ok && !isInitial {
		f.happenedLocked(h)
	}
}

// Record updates a record; nil means that it does not exist.
func (f *Feed) Record(before, after *corev1.ConfigMap, isInitial bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := nameOf(before, after)
	k := f.nodes[name]
	k.saved, k.savedAt = nil, ""
	if after == nil {
		f.board.RemoveRecord(name)
	} else {
		f.board.SetRecord(after)
		k.savedAt = after.ResourceVersion
		if r := inspect.ParseSaved(after).Record; r != nil {
			k.saved = orEmpty(r.Labels)
		}
	}
	f.nodes[name] = k
	f.rowLocked(name)
	if h, ok := inspect.RecordHappened(before, after); ok && !isInitial {
		f.happenedLocked(h)
	}
}

// Transaction updates a transaction; nil means that it does not exist.
func (f *Feed) Transaction(before, after *corev1.ConfigMap, isInitial bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = true
	name := nameOf(before, after)
	if old, ok := f.pending[name]; ok {
		delete(f.pending, name)
		f.board.RemovePending(old)
		defer f.rowLocked(old.Node)
	}
	delete(f.malformed, name)
	if after == nil {
		f.journal.Remove(kindTransaction, name)
		f.flow.applied++
		return
	}
	row := transactionRow{Created: after.CreationTimestamp.Time}
	t, err := queue.Parse(after)
	if err != nil {
		m := inspect.Malformed{Object: after, Reason: err}
		f.malformed[name] = m
		row.Node, row.Problem = m.Node(), shortened(err.Error())
	} else {
		f.pending[name] = t
		f.board.SetPending(t)
		defer f.rowLocked(t.Node)
		row.Node, row.Type, row.Version, row.UID, row.Labels = t.Node, string(t.Type), t.Revision.String(), string(t.UID), len(t.Labels)
	}
	f.put(kindTransaction, name, row)
	if h, ok := inspect.TransactionHappened(before, after); ok && !isInitial {
		f.flow.recorded++
		f.happenedLocked(h)
	}
}

// Lease updates a Lease in the membership namespace; nil means that it does not exist.
func (f *Feed) Lease(before, after *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after == nil {
		delete(f.leases, before.Name)
	} else {
		f.leases[after.Name] = after
	}
	f.stale = true
}

// Problem reports that a watch of a subject broke. Without the watch of the nodes, the health is
// unknown, and without that of the replicas, their readiness.
func (f *Feed) Problem(subject string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems[subject] = problem{err: err}
	f.stale = true
	f.put(kindProblem, subject, problemRow{Text: shortened(err.Error())})
}

// Solved reports that a watch of a subject works, as it may have before.
func (f *Feed) Solved(subject string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.problems[subject]; ok && p.solved.IsZero() {
		f.problems[subject] = problem{p.err, now}
	}
}

// Matching implements [Source]. It compares the saved labels of nodes that are away.
func (f *Feed) Matching(selector apilabels.Selector) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, k := range f.nodes {
		has := k.live
		if has == nil {
			has = k.saved
		}
		if has != nil && selector.Matches(has) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// rowLocked updates the row of a node. It waits for [Feed.Synced], as a node whose record is not
// read yet would appear to have none.
func (f *Feed) rowLocked(name string) {
	f.stale = true
	s, isThere := f.board.Summary(name)
	if !isThere {
		delete(f.nodes, name)
		f.journal.Remove(kindNode, name)
		return
	}
	if !f.cluster.Synced {
		return
	}
	k := f.nodes[name]
	s.Problem = shortened(s.Problem)
	f.put(kindNode, name, nodeRow{Summary: s, Revision: strconv.FormatUint(k.liveSum, 36) + "-" + k.savedAt})
}

// happenedLocked adds a happening, and removes the oldest beyond maxHappenings.
func (f *Feed) happenedLocked(h inspect.Happening) {
	h.Text = shortened(h.Text)
	f.put(kindHappening, strconv.Itoa(f.happenings), happeningRow{Happening: h, At: time.Now()})
	if old := f.happenings - maxHappenings; old >= 0 {
		f.journal.Remove(kindHappening, strconv.Itoa(old))
	}
	f.happenings++
}

// nameOf returns the name of an object that has changed.
func nameOf[O interface {
	comparable
	GetName() string
}](before, after O) string {
	if none := *new(O); after == none {
		return before.GetName()
	}
	return after.GetName()
}

func orEmpty(labels map[string]string) apilabels.Set {
	if labels == nil {
		return apilabels.Set{}
	}
	return labels
}

// sumOf returns a checksum of the parts of a Node that the page shows. Other metadata changes
// often.
func sumOf(n *metav1.PartialObjectMetadata) uint64 {
	sum := maphash.String(seed, string(n.UID)+strings.Join(n.Finalizers, ","))
	if n.DeletionTimestamp != nil {
		sum++
	}
	for _, all := range []map[string]string{n.Labels, n.Annotations} {
		for key, value := range all {
			sum += maphash.String(seed, key+"\x00"+value) // whatever the order
		}
	}
	return sum
}

func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}
