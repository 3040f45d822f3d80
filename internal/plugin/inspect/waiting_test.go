package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/ring/hashring"
	"nodekeeper.dev/internal/txn"
)

// clusterOf returns a cluster with these objects.
func clusterOf(objects ...client.Object) *inspect.Cluster {
	field := func(of func(*eventsv1.Event) string) client.IndexerFunc {
		return func(obj client.Object) []string { return []string{of(obj.(*eventsv1.Event))} }
	}
	c := faults.Fake().WithObjects(objects...).
		WithIndex(&eventsv1.Event{}, "type", field(func(e *eventsv1.Event) string { return e.Type })).
		WithIndex(&eventsv1.Event{}, "regarding.kind", field(func(e *eventsv1.Event) string { return e.Regarding.Kind })).
		WithIndex(&eventsv1.Event{}, "regarding.name", field(func(e *eventsv1.Event) string { return e.Regarding.Name })).
		WithIndex(&coordinationv1.Lease{}, metav1.ObjectNameField, func(obj client.Object) []string { return []string{obj.GetName()} }).
		Build()
	return &inspect.Cluster{Client: c, TransactionNamespace: "transactions", MetadataNamespace: "metadata", MembershipNamespace: "members"}
}

// pending returns a node with one transaction of incarnation "u" of this age.
func pending(typ txn.Type, ago time.Duration) *inspect.Node {
	recorded := time.Now().Add(-ago)
	t := txn.Transaction{Type: typ, Node: "node-1", UID: "u", ObservedAt: recorded}
	return &inspect.Node{Name: "node-1", Pending: []inspect.Pending{{Transaction: t, Created: recorded.Truncate(time.Second)}}}
}

// warning returns a single event of this age on a Node.
func warning(reason string, uid types.UID, ago time.Duration) *eventsv1.Event {
	at := metav1.NewMicroTime(time.Now().Add(-ago))
	name := strings.ToLower(fmt.Sprintf("%s-%s-%d", reason, uid, ago))
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, EventTime: at, Type: corev1.EventTypeWarning, Reason: reason, Note: name,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: uid},
	}
}

func TestNothingPendingSendsNoRequest(t *testing.T) {
	cluster := &inspect.Cluster{} // without a client
	w, err := cluster.Waiting(t.Context(), &inspect.Node{Name: "node-1"}, nil)
	require.NoError(t, err)
	assert.Nil(t, w)
}

func TestWaitingForTheBatchPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		const minute = time.Minute
		for name, tc := range map[string]struct {
			node      *inspect.Node
			saveDelay *time.Duration
			want      []inspect.WaitReason
			period    time.Duration
		}{
			"a save":                      {pending(txn.Updated, 0), nil, []inspect.WaitReason{inspect.SaveDelay}, 5 * time.Second},
			"a save that is overdue":      {pending(txn.Updated, 7*time.Second), nil, []inspect.WaitReason{inspect.Overdue}, 5 * time.Second},
			"the end of a node":           {pending(txn.Deleted, 40*time.Second), nil, []inspect.WaitReason{inspect.SaveDelay}, 45 * time.Second},
			"an end that is overdue":      {pending(txn.Deleted, 47*time.Second), nil, []inspect.WaitReason{inspect.Overdue}, 45 * time.Second},
			"a restore waits for nothing": {pending(txn.Added, 0), nil, []inspect.WaitReason{inspect.Overdue}, 0},
			"by the processors' value":    {pending(txn.Updated, 7*time.Second), new(minute), []inspect.WaitReason{inspect.SaveDelay}, minute},
		} {
			t.Log(name)
			func() {
				w, err := clusterOf(place("p-1", "p-1", "processor", 0)).Waiting(t.Context(), tc.node, tc.saveDelay)
				require.NoError(t, err)
				assert.Equal(t, tc.want, w.Reasons)
				assert.Equal(t, tc.period, w.Period.Duration)
				assert.Equal(t, tc.saveDelay == nil, w.SaveDelayAssumed)
				assert.Equal(t, "p-1", w.Owner)
			}()
		}
	})
}

func TestOwnerIsAReadyProcessorThatServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		n := pending(txn.Added, time.Minute)
		names := []string{"p-1", "p-2", "p-3"}
		owner := hashring.New(names...).Owner(n.Name)
		var rest []string
		for _, name := range names {
			if name != owner {
				rest = append(rest, name)
			}
		}
		next := hashring.New(rest...).Owner(n.Name)
		for name, tc := range map[string]struct {
			renewed time.Duration
			standby string
			want    string
		}{
			"ready":   {want: owner},
			"expired": {renewed: 6 * time.Second, want: next},
			"standby": {standby: "true", want: next},
		} {
			t.Log(name)
			func() {
				objects := []client.Object{place("w-1", "w-1", "watcher", 0)}
				for _, p := range names {
					l := place(p, p, "processor", 0)
					if p == owner {
						l = place(p, p, "processor", tc.renewed)
						l.Annotations = set{"nodekeeper.dev/ring-standby": tc.standby}
					}
					objects = append(objects, l)
				}
				w, err := clusterOf(objects...).Waiting(t.Context(), n, nil)
				require.NoError(t, err)
				assert.Equal(t, tc.want, w.Owner)
				assert.NotContains(t, w.Reasons, inspect.NoProcessor)
			}()
		}
		w, err := clusterOf(place("w-1", "w-1", "watcher", 0), place("p-1", "p-1", "processor", time.Hour)).Waiting(t.Context(), n, nil)
		require.NoError(t, err)
		assert.Equal(t, []inspect.WaitReason{inspect.NoProcessor}, w.Reasons)
		assert.Empty(t, w.Owner)
	})
}

func TestLastWarningHasAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		again := warning("LabelsRestoreFailed", "u", 20*time.Minute)
		again.Series = &eventsv1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(time.Now().Add(-19 * time.Minute))}
		normal := warning("LabelsRestoreFailed", "u", time.Second)
		normal.Type = corev1.EventTypeNormal
		deleted := pending(txn.Updated, time.Minute)
		deleted.Live = &nodeview.Node{Name: "node-1", UID: "u", DeletedAt: time.Now()}
		for name, tc := range map[string]struct {
			node   *inspect.Node
			events []client.Object
			reason string
			count  int32
		}{
			"of two processors":                      {pending(txn.Added, time.Minute), []client.Object{warning("LabelsRestoreFailed", "u", 9*time.Second), warning("LabelsRestoreFailed", "u", time.Second)}, "LabelsRestoreFailed", 2},
			"of a series that is written seldom":     {pending(txn.Added, time.Minute), []client.Object{again}, "LabelsRestoreFailed", 7},
			"of a restore before":                    {pending(txn.Added, time.Minute), []client.Object{warning("LabelsRestoreFailed", "u", time.Hour)}, "", 0},
			"of another incarnation":                 {pending(txn.Added, time.Minute), []client.Object{warning("LabelsRestoreFailed", "other", time.Second)}, "", 0},
			"of a restore that was done in the end":  {pending(txn.Updated, time.Minute), []client.Object{warning("LabelsRestoreFailed", "u", time.Second)}, "", 0},
			"of what was lost":                       {pending(txn.Added, time.Minute), []client.Object{warning("LabelsTooLarge", "u", time.Second)}, "", 0},
			"of another program":                     {pending(txn.Added, time.Minute), []client.Object{warning("InvalidDiskCapacity", "u", time.Second)}, "", 0},
			"normal":                                 {pending(txn.Added, time.Minute), []client.Object{normal}, "", 0},
			"of a deletion":                          {deleted, []client.Object{warning("DeletionWaits", "u", time.Second)}, "DeletionWaits", 1},
			"of a deletion, and the Node is another": {pending(txn.Updated, time.Minute), []client.Object{warning("DeletionWaits", "u", time.Second)}, "", 0},
		} {
			func() {
				w, err := clusterOf(append(tc.events, place("p-1", "p-1", "processor", 0))...).Waiting(t.Context(), tc.node, nil)
				require.NoError(t, err)
				if tc.reason == "" {
					assert.Nil(t, w.Warning, name)
					assert.NotContains(t, w.Reasons, inspect.WarningEvent, name)
					return
				}
				require.NotNil(t, w.Warning, name)
				assert.Equal(t, tc.reason, w.Warning.Reason, name)
				assert.Equal(t, tc.count, w.Warning.Count, name)
				assert.Equal(t, tc.events[len(tc.events)-1].GetName(), w.Warning.Note, "%s: that of the last one", name)
				assert.Equal(t, []inspect.WaitReason{inspect.WarningEvent}, w.Reasons, name)
			}()
		}
	})
}

func TestWarningOnTheRecordCountsWhileItIsUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		n := pending(txn.Updated, 0)
		n.Saved.Object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "metadata", Name: "node-1", UID: "record"}}
		about := warning("RecordUnreadable", "record", time.Hour)
		about.Namespace, about.Regarding.Kind = "metadata", "ConfigMap"
		cluster := clusterOf(about, place("p-1", "p-1", "processor", 0), lock("node-1", "p-2", time.Second))

		w, err := cluster.Waiting(t.Context(), n, nil)
		require.NoError(t, err)
		assert.Equal(t, []inspect.WaitReason{inspect.Locked}, w.Reasons, "it was corrected")
		n.Saved.Unreadable = record.ErrUnreadable
		w, err = cluster.Waiting(t.Context(), n, nil)
		require.NoError(t, err)
		assert.Equal(t, []inspect.WaitReason{inspect.WarningEvent, inspect.Locked}, w.Reasons)
		n.Saved.Object.UID = "recreated"
		w, err = cluster.Waiting(t.Context(), n, nil)
		require.NoError(t, err)
		assert.Equal(t, []inspect.WaitReason{inspect.UnreadableRecord, inspect.Locked}, w.Reasons)
		assert.Equal(t, "p-2", w.Lock.Holder)
		assert.False(t, w.Lock.IsExpired)
	})
}
