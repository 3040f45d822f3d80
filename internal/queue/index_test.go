package queue_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const namespace = "transactions"

// stored returns the ConfigMap of an update of node-1 as stored by the API server. Its UID is its
// revision.
func stored(rev string) *corev1.ConfigMap {
	t := txn.Transaction{
		Type: txn.Updated, Node: "node-1", UID: "incarnation", Revision: revision.MustParse(rev),
		Labels: map[string]string{"rack": "r" + rev}, ObservedAt: time.Unix(1_000_000, 0).UTC(),
	}
	cm := t.ConfigMap(namespace)
	cm.UID, cm.ResourceVersion, cm.CreationTimestamp = types.UID("uid-"+rev), rev, metav1.Unix(1_000_000, 0)
	return cm
}

// entry returns a ConfigMap as delivered by a streamed list.
func entry(t *testing.T, cm *corev1.ConfigMap) any {
	t.Helper()
	obj, err := queue.NewIndex().Transformer()(cm)
	require.NoError(t, err)
	return obj
}

func revisions(pending []queue.Queued) []string {
	all := []string{}
	for i := range pending {
		all = append(all, pending[i].Revision.String())
	}
	return all
}

func TestIndexReturnsTransactionsInNumericOrder(t *testing.T) {
	x := queue.NewIndex()
	for _, rev := range []string{"100", "9", "1000", "10"} {
		require.NoError(t, x.Add(entry(t, stored(rev))))
	}
	pending := x.Pending("node-1")
	assert.Equal(t, []string{"9", "10", "100", "1000"}, revisions(pending))
	assert.Equal(t, types.UID("uid-9"), pending[0].ObjectUID)
	assert.Equal(t, time.Unix(1_000_000, 0), pending[0].Created)
	assert.Empty(t, x.Pending("node-2"))
}

func TestIndexIsTheSameWithAndWithoutTheTransform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, without := queue.NewIndex(), queue.NewIndex()
		require.NoError(t, with.Add(entry(t, stored("9"))))
		require.NoError(t, without.Add(stored("9")))
		assert.Equal(t, with.Pending("node-1"), without.Pending("node-1"))
		assert.Equal(t, time.Now(), with.Pending("node-1")[0].Seen)
		require.NoError(t, with.Delete(entry(t, stored("9"))))
		require.NoError(t, without.Delete(stored("9")))
		assert.Equal(t, queue.Stock{Pending: map[txn.Type]int{}}, with.Stock())
		assert.Equal(t, with.Stock(), without.Stock())
	})
}

func TestIndexIgnoresForeignConfigMaps(t *testing.T) {
	x := queue.NewIndex()
	for _, cm := range []*corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "istio-ca-root-cert"}, Data: map[string]string{"root-cert.pem": "-----"}},
	} {
		obj := entry(t, cm)
		require.NoError(t, x.Add(obj))
		require.NoError(t, x.Update(obj))
		assert.Empty(t, x.Pending("node-1"), cm.Name)
		assert.Equal(t, queue.Stock{Pending: map[txn.Type]int{}}, x.Stock(), cm.Name)
		require.NoError(t, x.Delete(obj))
	}
}

func TestIndexCountsMalformedTransactions(t *testing.T) {
	x := queue.NewIndex()
	malformed := stored("7")
	malformed.Data["type"] = "moved"
	require.NoError(t, x.Add(entry(t, malformed)))
	require.NoError(t, x.Add(entry(t, stored("8"))))
	assert.Equal(t, []string{"8"}, revisions(x.Pending("node-1")))
	assert.Equal(t, 1, x.Stock().Malformed)

	marked := malformed.DeepCopy()
	marked.Labels[txn.MalformedLabel] = "true"
	require.NoError(t, x.Update(entry(t, marked)))
	assert.Equal(t, 1, x.Stock().Malformed)
	require.NoError(t, x.Update(entry(t, stored("7"))))
	assert.Equal(t, []string{"7", "8"}, revisions(x.Pending("node-1")), "it was corrected")
	assert.Zero(t, x.Stock().Malformed)

	require.NoError(t, x.Update(entry(t, malformed)))
	assert.Equal(t, []string{"8"}, revisions(x.Pending("node-1")))
	require.NoError(t, x.Delete(entry(t, malformed)))
	assert.Zero(t, x.Stock().Malformed)
}

func TestIndexAppliesChangedMetadata(t *testing.T) {
	x := queue.NewIndex()
	for _, rev := range []string{"7", "8", "9"} {
		require.NoError(t, x.Add(entry(t, stored(rev))))
	}
	urgent := stored("8")
	urgent.Annotations[txn.AtOnceAnnotation] = "true"
	before := x.Pending("node-1")
	require.NoError(t, x.Update(entry(t, urgent)))
	after := x.Pending("node-1")
	assert.Equal(t, []string{"7", "8", "9"}, revisions(after))
	assert.True(t, after[1].AtOnce)
	assert.False(t, before[1].AtOnce)
	assert.Equal(t, 3, x.Stock().Pending[txn.Updated])
}

func TestIndexAddsTransactionOnce(t *testing.T) {
	x := queue.NewIndex()
	require.NoError(t, x.Add(entry(t, stored("8"))))
	require.NoError(t, x.Add(entry(t, stored("8"))))
	assert.Len(t, x.Pending("node-1"), 1)
	assert.Equal(t, 1, x.Stock().Pending[txn.Updated])
}

func TestIndexDropsTransactionByUID(t *testing.T) {
	x := queue.NewIndex()
	require.NoError(t, x.Add(entry(t, stored("8"))))
	another := stored("8")
	another.UID = "another"
	require.NoError(t, x.Update(entry(t, another))) // deleted and created again while the watch was interrupted
	require.NoError(t, x.Delete(entry(t, stored("8"))))
	require.Equal(t, []string{"8"}, revisions(x.Pending("node-1")))
	assert.Equal(t, types.UID("another"), x.Pending("node-1")[0].ObjectUID)

	require.NoError(t, x.Delete(entry(t, another)))
	assert.Empty(t, x.Pending("node-1"))
}

func TestIndexNeverChangesResults(t *testing.T) {
	x := queue.NewIndex()
	var held [][]queue.Queued
	var want [][]string
	hold := func() {
		held = append(held, x.Pending("node-1"))
		want = append(want, revisions(held[len(held)-1]))
	}
	for _, rev := range []string{"50", "60", "70", "55", "40"} { // at the end, in the middle, at the front
		require.NoError(t, x.Add(entry(t, stored(rev))))
		hold()
	}
	for _, rev := range []string{"40", "60", "70", "50"} { // at the front, in the middle, at the end
		require.NoError(t, x.Delete(entry(t, stored(rev))))
		hold()
		require.NoError(t, x.Add(entry(t, stored(rev+"0"))))
		hold()
	}
	for i := range held {
		assert.Equal(t, want[i], revisions(held[i]), "number %d", i)
		assert.Equal(t, len(held[i]), cap(held[i]), "whoever appends must not write into the index")
	}
}

func TestStockIncludesAllNodes(t *testing.T) {
	x := queue.NewIndex()
	add := func(node string, typ txn.Type, rev string, created int64) {
		cm := txn.Transaction{Type: typ, Node: node, UID: "u", Revision: revision.MustParse(rev)}.ConfigMap(namespace)
		cm.CreationTimestamp = metav1.Unix(created, 0)
		require.NoError(t, x.Add(entry(t, cm)))
	}
	add("node-1", txn.Deleted, "7", 300)
	add("node-1", txn.Added, "8", 200)
	add("node-2", txn.Deleted, "9", 400)
	assert.Equal(t, queue.Stock{
		Pending: map[txn.Type]int{txn.Added: 1, txn.Deleted: 2}, Oldest: time.Unix(200, 0),
	}, x.Stock())
	assert.Equal(t, []string{"node-1"}, x.OlderThan(time.Unix(400, 0)))
	assert.Empty(t, x.OlderThan(time.Unix(300, 0)))
}

// A long queue of one node takes linear work, in any order of the list, and whether it is dropped
// from the front or in any order. The test counts bytes, because time depends on the load of the
// machine.
func TestLongQueueTakesLinearWork(t *testing.T) {
	for name, shuffle := range map[string]func([]any){
		"in order": func([]any) {},
		"in no order": func(entries []any) {
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Less(t, costOf(t, 4000, shuffle), 6*costOf(t, 1000, shuffle))
		})
	}
}

// costOf returns how many bytes are allocated for transactions of one node that are put and dropped
// in an order, and then put again in that order, returned and dropped from the front.
func costOf(t *testing.T, count int, shuffle func([]any)) uint64 {
	t.Helper()
	inOrder := make([]any, count)
	for i := range inOrder {
		inOrder[i] = entry(t, stored(strconv.Itoa(1_000_000+i)))
	}
	shuffled := slices.Clone(inOrder)
	shuffle(shuffled)
	x := queue.NewIndex()
	before := allocated()
	for _, e := range shuffled {
		require.NoError(t, x.Add(e))
	}
	require.Len(t, x.Pending("node-1"), count)
	for _, e := range shuffled {
		require.NoError(t, x.Delete(e))
	}
	require.Empty(t, x.Pending("node-1"))
	for _, e := range shuffled {
		require.NoError(t, x.Add(e))
	}
	for i, e := range inOrder {
		if pending := x.Pending("node-1"); len(pending) != count-i {
			require.Len(t, pending, count-i)
		}
		require.NoError(t, x.Delete(e))
	}
	return allocated() - before
}

// allocated returns how many bytes this process has allocated so far.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// TestDroppedTransactionStaysAway: an interrupted watch delivers the removal much later.
func TestDroppedTransactionStaysAway(t *testing.T) {
	x := queue.NewIndex()
	first, second := entry(t, stored("1")), entry(t, stored("2"))
	require.NoError(t, x.Add(first))
	require.NoError(t, x.Add(second))
	removed := x.Pending("node-1")[0]

	x.Drop(removed)
	assert.Equal(t, []string{"2"}, revisions(x.Pending("node-1")))
	require.NoError(t, x.Delete(first))
	x.Drop(removed)
	assert.Equal(t, []string{"2"}, revisions(x.Pending("node-1")))
	assert.Equal(t, 1, x.Stock().Pending[txn.Updated])

	again := stored("1")
	again.UID = "another"
	require.NoError(t, x.Add(entry(t, again)))
	x.Drop(removed)
	assert.Equal(t, []string{"1", "2"}, revisions(x.Pending("node-1")), "another object has taken the name")
}

// A processor removes a transaction and drops it, and then the watch delivers the removal.
func TestRemovalsOfLongQueueTakeLinearWork(t *testing.T) {
	cost := func(count int) uint64 {
		x := queue.NewIndex()
		entries := make([]any, count)
		for i := range entries {
			entries[i] = entry(t, stored(strconv.Itoa(1_000_000+i)))
			require.NoError(t, x.Add(entries[i]))
		}
		before := allocated()
		for _, e := range entries {
			x.Drop(x.Pending("node-1")[0])
			if x.Delete(e) != nil {
				t.Fatal("unexpected")
			}
		}
		require.Empty(t, x.Pending("node-1"))
		return allocated() - before
	}
	assert.Less(t, cost(4000), 6*cost(1000)+1<<16)
}

func TestListReplacesEverything(t *testing.T) {
	x := queue.NewIndex()
	malformed := stored("7")
	malformed.Data["type"] = "moved"
	for _, cm := range []*corev1.ConfigMap{malformed, stored("8"), stored("10")} {
		require.NoError(t, x.Add(cm))
	}
	held := x.Pending("node-1")
	assert.False(t, x.Synced())
	require.NoError(t, x.Replace([]any{stored("11"), entry(t, stored("9")), stored("10")}, "12"))
	assert.True(t, x.Synced())
	assert.Equal(t, []string{"9", "10", "11"}, revisions(x.Pending("node-1")))
	assert.Zero(t, x.Stock().Malformed)
	assert.Equal(t, []string{"8", "10"}, revisions(held))
	require.NoError(t, x.Replace(nil, "13"))
	assert.Empty(t, x.Pending("node-1"))
	assert.Empty(t, x.OlderThan(time.Now()))
}

// notified follows an index and records its notifications.
type notified []string

func (f *notified) see(e *queue.Entry) {
	if e.Malformed != nil {
		*f = append(*f, "malformed "+e.Name)
		return
	}
	*f = append(*f, e.Transaction.Node+" "+e.Transaction.Revision.String())
}

func TestFollowersAreNotifiedOfChangedNodes(t *testing.T) {
	x := queue.NewIndex()
	var first, second notified
	x.Follow(first.see)
	take := func() notified {
		all := first
		first = nil
		slices.Sort(all)
		return all
	}
	malformed := stored("7")
	malformed.Data["type"] = "moved"
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "istio-ca-root-cert"}}
	require.NoError(t, x.Replace([]any{stored("8"), malformed, foreign}, "9"))
	all := notified{"malformed " + malformed.Name, "node-1 8"}
	assert.Equal(t, all, take())
	x.Follow(second.see)
	slices.Sort(second)
	assert.Equal(t, all, second, "one that comes later")

	require.NoError(t, x.Add(stored("10")))
	require.NoError(t, x.Update(stored("10")))
	require.NoError(t, x.Delete(stored("10")))
	assert.Equal(t, notified{"node-1 10", "node-1 10", "node-1 10"}, take())
	require.NoError(t, x.Replace(nil, "11"))
	assert.Equal(t, all, take(), "removed transactions")
	require.NoError(t, x.Replace(nil, "12"))
	assert.Empty(t, take())
}
