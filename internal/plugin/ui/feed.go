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
	kindHappening   = "happening"   // happeningRow, by a number that grows
	kindReplica     = "replica"     // replicaRow, by service and name
	kindProblem     = "problem"     // problemRow, by what cannot be watched
	kindMeta        = "meta"        // clusterRow, Health and flowRow, by the keys below
)

// What is watched, as [Feed.Problem] and the page name it.
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
	// maxHappenings bounds the happenings that are shown.
	maxHappenings = 200
	// maxText bounds texts that repeat what somebody else has written.
	maxText = 300
	// settlePeriod is how long a watch that works again is still shown to be broken: until it has
	// brought what was missed.
	settlePeriod = 2 * time.Second
)

// nodeRow is a node in the list.
type nodeRow struct {
	inspect.Summary

	// Revision changes whenever anything that is shown of the node does.
	Revision string `json:"revision"`
}

type transactionRow struct {
	// Node is "" if it is no transaction and does not say of which node it is.
	Node    string    `json:"node"`
	Type    string    `json:"type"`
	Version string    `json:"version"`
	UID     string    `json:"uid"`
	Labels  int       `json:"labels"`
	Created time.Time `json:"created"`
	// Problem says why it is no transaction.
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
	// Synced reports whether everything that was there at the start is shown.
	Synced bool `json:"synced"`
}

// Health says how nodekeeper is.
type Health struct {
	// Unwell is why nodekeeper does not do its work. It is empty if all is well.
	Unwell []string `json:"unwell"`
	// Stuck is what does not go on without people.
	Stuck []Stuck `json:"stuck"`
	// StuckTotal counts these, and those that are left out of Stuck because there are too many.
	StuckTotal int `json:"stuckTotal"`
}

// Stuck is one thing that does not go on without people.
type Stuck struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Advice string `json:"advice"`
}

// Feed makes entries of a journal from what watches show. It is safe for concurrent use. It keeps the
// labels of the objects that it is given, which must not change.
type Feed struct {
	// Clock returns the time of the cluster at a local time. Nil: the clocks agree. It must be set
	// before the feed is used.
	Clock func(time.Time) time.Time

	journal *Journal
	// judge says how nodekeeper is at a time of the cluster.
	judge func(*inspect.Survey, time.Time) Health

	mu         sync.Mutex
	cluster    clusterRow
	board      *inspect.Board
	nodes      map[string]known
	pending    map[string]inspect.Pending // by the name of the ConfigMap
	malformed  map[string]inspect.Malformed
	leases     map[string]*coordinationv1.Lease
	problems   map[string]problem // by what is watched
	happenings int
	replicas   map[string]bool // those that are noted, by their keys
	flow       flow
	// stale reports whether the health and the shares may be others than those that were last noted.
	stale bool
}

// problem is why a watch broke the last time.
type problem struct {
	err error
	// solved is since when it works again, zero if it does not.
	solved time.Time
}

// known is what a feed keeps of a node besides its summary.
type known struct {
	live, saved apilabels.Set // nil: there is none
	liveSum     uint64
	savedAt     string // the resourceVersion of the record
}

var seed = maphash.MakeSeed()

// NewFeed returns a feed that fills the journal. Cluster is the name that the page shows, and judge says
// how nodekeeper is.
func NewFeed(journal *Journal, cluster string, judge func(*inspect.Survey, time.Time) Health) *Feed {
	f := &Feed{
		journal: journal, judge: judge, cluster: clusterRow{Name: cluster}, board: inspect.NewBoard(apilabels.Everything()),
		nodes: map[string]known{}, pending: map[string]inspect.Pending{}, malformed: map[string]inspect.Malformed{},
		leases: map[string]*coordinationv1.Lease{}, problems: map[string]problem{},
	}
	f.put(kindMeta, metaCluster, f.cluster)
	return f
}

// put notes an entry.
func (f *Feed) put(kind, key string, value any) {
	_ = f.journal.Set(kind, key, value) // rows are plain data, which can be encoded
}

// Synced notes that everything that was there at the start was given.
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

// Node notes the change of a Node: nil stands for one that is not there. Nodes that are
// there at the start are shown without an activity.
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

// Record notes the change of a record: nil stands for one that is not there.
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

// Transaction notes the change of a transaction: nil stands for one that is not there.
func (f *Feed) Transaction(before, after *corev1.ConfigMap, isInitial bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = true
	name := nameOf(before, after)
	if old, ok := f.pending[name]; ok {
		delete(f.pending, name)
		f.board.AddPending(old.Node, -1)
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
		f.board.AddPending(t.Node, 1)
		defer f.rowLocked(t.Node)
		row.Node, row.Type, row.Version, row.UID, row.Labels = t.Node, string(t.Type), t.Revision.String(), string(t.UID), len(t.Labels)
	}
	f.put(kindTransaction, name, row)
	if h, ok := inspect.TransactionHappened(before, after); ok && !isInitial {
		f.flow.recorded++
		f.happenedLocked(h)
	}
}

// Lease notes the change of a Lease in the namespace of the members: nil stands for one that is not
// there.
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

// Problem notes that a watch broke, and what it watches: one of the constants. While the watch of the
// nodes is broken, it is unknown how nodekeeper is, and while that of the replicas is, who is ready.
func (f *Feed) Problem(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems[what] = problem{err: err}
	f.stale = true
	f.put(kindProblem, what, problemRow{Text: shortened(err.Error())})
}

// Solved notes that a watch works. It may have worked before.
func (f *Feed) Solved(what string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.problems[what]; ok && p.solved.IsZero() {
		f.problems[what] = problem{p.err, now}
	}
}

// Matching implements a part of [Source]: the names of the nodes whose labels match, or whose saved
// labels do if there is no Node.
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

// rowLocked notes the row of a node, if it is another one than before. Before all is known, a node
// whose record is not read yet, or may not be read, would be said to have none.
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

// happenedLocked notes what has happened, and forgets what happened long before.
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

// sumOf changes whenever what is shown of a Node does. Metadata changes often for other reasons.
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
