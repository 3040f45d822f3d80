package apply_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// returned is a cluster with a record of incarnation a; incarnation b has returned with the labels
// that its kubelet set.
func returned() *cluster {
	c := &cluster{rv: 1000}
	c.node = &nodeview.Node{Name: "node-1"}
	c.node.UID, c.node.Revision, c.node.Labels = "b", revision.MustParse("100"), set{"new": "n"}
	c.keep(record.Record{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("50"), Source: "a"})
	return c
}

func event(typ txn.Type, uid types.UID, rev string, own set) txn.Transaction {
	return txn.Transaction{Type: typ, Node: "node-1", UID: uid, Revision: revision.MustParse(rev), Labels: own, FoundsRecord: typ == txn.Added}
}

var (
	edited = event(txn.Updated, "a", "60", set{"rack": "r2"})
	ended  = event(txn.Deleted, "a", "70", set{"rack": "r3"})
	added  = event(txn.Added, "b", "100", set{"new": "n"})
	errOut = errors.New("outage")
)

func TestReadsAndWritesPerPlan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queue   []txn.Transaction
		calls   []string
		applied []string
	}{
		"saves only": {
			[]txn.Transaction{edited, ended},
			[]string{"cached", "write"},
			[]string{"60: nothing", "70: save"},
		},
		"an end and a return": {
			[]txn.Transaction{ended, added},
			[]string{"cached", "get node", "write", "relabel", "write"},
			[]string{"70: save", "100: restore"},
		},
		"a return alone": {
			[]txn.Transaction{added},
			[]string{"cached", "get node", "get record", "relabel", "write"},
			[]string{"100: restore"},
		},
		"an end that was applied": {
			[]txn.Transaction{event(txn.Deleted, "a", "40", set{})},
			[]string{"cached", "now", "get node", "get record"}, // the process had not read the revision of the Nodes yet
			[]string{"40: nothing"},
		},
		"a return and an edit of it": {
			[]txn.Transaction{added, event(txn.Updated, "b", "105", set{"new": "2"})},
			[]string{"cached", "get node", "get record", "relabel", "write"},
			[]string{"100: restore", "105: nothing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := returned()
			c.mustApply(t, tc.queue...)
			assert.Equal(t, tc.calls, c.calls)
			assert.Equal(t, tc.applied, c.applied)
		})
	}
}

// The end has the same labels, so on its own it would not change the record.
func TestSaveOfAnEditAndTheFollowingEndIsReportedAsTheEdit(t *testing.T) {
	t.Parallel()
	c := returned()
	c.mustApply(t, edited, event(txn.Deleted, "a", "70", edited.Labels))
	assert.Equal(t, []string{"60: save", "70: nothing"}, c.applied)
	assert.Equal(t, []string{"cached", "write"}, c.calls)
	assert.True(t, c.stored.Record.Ended)
}

func TestFirstLabelsOfANodeCostOneWrite(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	c.mustApply(t, added)
	assert.Equal(t, []string{"cached", "write"}, c.calls)
	assert.Equal(t, set{"new": "n"}, c.stored.Record.Labels)
}

func TestRestoreNotesTheLabelsOfTheAnswer(t *testing.T) {
	t.Parallel()
	c := returned()
	c.mutate = func(own set) {
		own["stamped"] = "yes"
		delete(own, "rack")
	}
	c.mustApply(t, added)
	assert.Equal(t, set{"stamped": "yes"}, c.stored.Record.Labels)
	assert.Equal(t, types.UID("b"), c.stored.Record.Source)
	assert.Equal(t, c.node.Revision.String(), c.stored.Record.Revision.String())
}

func TestConflictMakesEveryReadLive(t *testing.T) {
	t.Parallel()
	c := returned()
	behind := c.stored
	c.cached = &behind
	// Another process has saved the end, restored its labels onto b, and noted the restore.
	c.node.Labels, c.node.Marker, c.node.Revision = set{"rack": "edited"}, "70", revision.MustParse("111")
	c.keep(record.Record{
		Node: "node-1", Labels: set{"rack": "r3"}, Revision: revision.MustParse("70"), Source: "a",
		Restored: record.Restoration{UID: "b", Revision: revision.MustParse("110")},
	})
	before := c.stored
	c.mustApply(t, ended, added)
	assert.Equal(t, []string{"cached", "get node", "write", "get node", "get record"}, c.calls)
	assert.Equal(t, []error{records.ErrStale}, c.stale)
	assert.Equal(t, "edited", c.node.Labels["rack"])
	assert.Equal(t, before, c.stored)
}

func TestNothingIsDroppedOnACachedRead(t *testing.T) {
	t.Parallel()
	c := returned()
	// The cache has a later record, which belongs to another cluster or was undone by an etcd restore.
	ahead := records.Stored{Record: &record.Record{Node: "node-1", Revision: revision.MustParse("900"), Source: "a"}, Object: c.stored.Object}
	c.cached = &ahead
	c.mustApply(t, ended)
	assert.Equal(t, []string{"cached", "now", "get node", "get record", "write"}, c.calls)
	assert.Equal(t, set{"rack": "r3"}, c.stored.Record.Labels)
}

// The revisions of the cluster have started again, so the record is later than every Node.
func TestRecordOfAnEarlierHistoryIsRenewed(t *testing.T) {
	t.Parallel()
	c := returned()
	c.now, c.node.UID, c.node.Revision = "40", "a", revision.MustParse("35")
	c.mustApply(t, event(txn.Updated, "a", "30", set{"new": "n"}))
	assert.Equal(t, []string{"cached", "now", "get node", "write"}, c.calls)
	assert.Equal(t, record.Record{Node: "node-1", Labels: set{"new": "n"}, Revision: revision.MustParse("35"), Source: "a"}, *c.stored.Record)
	assert.Equal(t, []string{"30"}, c.renewed)

	c.calls, c.node.Revision = nil, revision.MustParse("60")
	c.mustApply(t, event(txn.Updated, "a", "60", set{"new": "m"}))
	assert.Equal(t, []string{"cached", "write"}, c.calls, "it is of this history now")
	assert.Len(t, c.renewed, 1)
}

// The process knows a revision of the Nodes that the record does not exceed.
func TestRevisionOfTheNodesIsReadOnceForLateTransactions(t *testing.T) {
	t.Parallel()
	c := returned()
	a := c.applier()
	late := []txn.Transaction{event(txn.Deleted, "a", "40", set{})}
	for range 3 {
		_, err := a.Apply(t.Context(), late, func(context.Context, []txn.Transaction) error { return nil })
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"cached", "now", "get node", "get record", "cached", "get node", "get record", "cached", "get node", "get record"}, c.calls)
}

func TestConflictsInARowEndTheAttempt(t *testing.T) {
	t.Parallel()
	c := returned()
	c.before = func(call string) error {
		if call == "relabel" {
			c.node.Revision = c.next() // another client writes the Node continuously
		}
		return nil
	}
	settled, err := c.apply(t, ended, added)
	require.ErrorContains(t, err, "conflicts in a row")
	assert.Equal(t, 1, settled, "the end is saved")
	assert.Len(t, c.stale, 10)
	assert.Empty(t, c.node.Marker)
}

// A lost answer ends the attempt. The next attempt finds the write, and writes no label twice.
func TestLostAnswersAreFoundByTheNextAttempt(t *testing.T) {
	t.Parallel()
	for lost := range 5 {
		t.Run(strconv.Itoa(lost), func(t *testing.T) {
			t.Parallel()
			c := returned()
			count := 0
			c.after = func(string) error {
				if count++; count == lost+1 {
					return errOut
				}
				return nil
			}
			queue := []txn.Transaction{ended, added}
			settled, err := c.apply(t, queue...)
			if lost == 0 { // a failing cache is equivalent to no cache
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errOut)
				// A user edits the restored labels.
				if c.node.Marker != "" {
					c.node.Labels["rack"], c.node.Revision = "edited", c.next()
				}
			}
			c.mustApply(t, queue[settled:]...)
			want := "r3"
			if lost > 2 {
				want = "edited"
			}
			assert.Equal(t, want, c.node.Labels["rack"])
			assert.True(t, preserve.Owned(*c.stored.Record, "b", ""))
		})
	}
}

func TestRefusedRestoreNamesTheNodeAndSettlesWhatCameBefore(t *testing.T) {
	t.Parallel()
	c := returned()
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("by policy"))
	c.before = func(call string) error {
		if call == "relabel" {
			return refusal
		}
		return nil
	}
	settled, err := c.apply(t, ended, added)
	refused, ok := errors.AsType[*apply.RefusedError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, &apply.RefusedError{Node: "node-1", UID: "b", Err: refusal}, refused)
	require.ErrorIs(t, err, refusal)
	require.ErrorContains(t, err, `restoring the labels of node "node-1"`)
	assert.Equal(t, 1, settled)
	assert.Equal(t, set{"rack": "r3"}, c.stored.Record.Labels)
}

func TestOutageOfARestoreIsNoRefusal(t *testing.T) {
	t.Parallel()
	c := returned()
	c.before = func(call string) error {
		if call == "relabel" {
			return apierrors.NewTooManyRequests("later", 1)
		}
		return nil
	}
	_, err := c.apply(t, added)
	require.True(t, apierrors.IsTooManyRequests(err))
	_, ok := errors.AsType[*apply.RefusedError](err)
	assert.False(t, ok)
}

func TestUnreadableRecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := returned()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: "node-1", ResourceVersion: "7"}}
	c.stored = records.Parse(cm)
	settled, err := c.apply(t, ended, added)
	unreadable, ok := errors.AsType[*apply.UnreadableError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, cm, unreadable.Object)
	require.ErrorIs(t, err, record.ErrUnreadable)
	assert.Zero(t, settled)
	assert.NotContains(t, c.calls, "write")
	assert.NotContains(t, c.calls, "relabel")
}

func TestConfirmIsAskedAfterAllReadsAndEndsTheAttempt(t *testing.T) {
	t.Parallel()
	c := returned()
	errLost := errors.New("it never happened")
	queue := []txn.Transaction{ended, added}
	settled, err := c.applier().Apply(t.Context(), queue, func(_ context.Context, rest []txn.Transaction) error {
		assert.Equal(t, []txn.Transaction{ended}, rest, "the return is of the live Node")
		assert.Equal(t, []string{"cached", "get node"}, c.calls)
		return errLost
	})
	require.ErrorIs(t, err, errLost)
	assert.Zero(t, settled)
	assert.Equal(t, []string{"cached", "get node"}, c.calls)
	assert.Empty(t, c.applied)
}

func TestConfirmIsAskedOfEveryPlan(t *testing.T) {
	t.Parallel()
	c := returned()
	later := event(txn.Updated, "b", "2000", set{"new": "2"})
	var asked []int
	_, err := c.applier().Apply(t.Context(), []txn.Transaction{ended, added, later}, func(_ context.Context, rest []txn.Transaction) error {
		asked = append(asked, len(rest))
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 1}, asked, "what a restore leaves is known only then")
	assert.Equal(t, set{"new": "2"}, c.stored.Record.Labels)
}

func TestSignOfLifeTakesTheTimeOfAbsenceAway(t *testing.T) {
	t.Parallel()
	c := returned()
	c.stored.Object.Annotations[record.AwaySinceAnnotation] = "2026-11-21T03:14:15Z"
	c.mustApply(t, event(txn.Updated, "never-restored", "110", set{}))
	assert.NotContains(t, c.stored.Object.Annotations, record.AwaySinceAnnotation)
	assert.Equal(t, []string{"110: nothing"}, c.applied)
}

// Only that transaction is dropped, not the transactions that its save would have superseded.
func TestTransactionTooLargeForARecordBlocksNoOther(t *testing.T) {
	t.Parallel()
	huge := set{"huge": "x"}
	tooLarge, more := event(txn.Updated, "a", "65", huge), event(txn.Updated, "a", "66", huge)
	for name, tc := range map[string]struct {
		queue []txn.Transaction
		lost  []txn.Transaction
		saved set
	}{
		"alone":           {[]txn.Transaction{tooLarge}, []txn.Transaction{tooLarge}, set{"rack": "r1"}},
		"behind others":   {[]txn.Transaction{edited, tooLarge}, []txn.Transaction{tooLarge}, set{"rack": "r2"}},
		"two of them":     {[]txn.Transaction{edited, tooLarge, more}, []txn.Transaction{tooLarge, more}, set{"rack": "r2"}},
		"before others":   {[]txn.Transaction{tooLarge, ended}, nil, set{"rack": "r3"}},
		"before an old":   {[]txn.Transaction{tooLarge, edited}, []txn.Transaction{tooLarge}, set{"rack": "r2"}},
		"before a return": {[]txn.Transaction{edited, tooLarge, added}, []txn.Transaction{tooLarge}, set{"rack": "r2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := returned()
			c.tooLarge = huge
			c.mustApply(t, tc.queue...)
			assert.Equal(t, tc.lost, c.oversize)
			assert.Equal(t, tc.saved, c.stored.Record.Labels)
		})
	}
}

// Planned alone, the edit is saved from the cache without reading the Node, which the return needs.
// Planned together with the labels that are too large, it does not fit in the record.
func TestReturnAfterASaveThatWasPlannedAloneReadsTheNode(t *testing.T) {
	t.Parallel()
	c := returned()
	c.tooLarge = set{"huge": "h"}
	between := event(txn.Updated, "between", "80", set{"rack": "r4"})
	between.Marker = "50" // restored from the record, which does not note it yet
	c.mustApply(t, event(txn.Updated, "a", "60", c.tooLarge), between, added)
	assert.Equal(t, []string{"80: save", "100: restore"}, c.applied)
	assert.Len(t, c.oversize, 1)
	assert.Equal(t, "r4", c.node.Labels["rack"])
}

// The cache does not have the record yet, so the initial labels of the node seem to need saving.
func TestNothingTooLargeIsDroppedOnACachedRead(t *testing.T) {
	t.Parallel()
	c := returned()
	c.cached, c.tooLarge = &records.Stored{}, set{"new": "n"}
	c.mustApply(t, added)
	assert.Empty(t, c.oversize)
	assert.Equal(t, "r1", c.node.Labels["rack"])
}
