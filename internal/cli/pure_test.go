package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/byhand"
	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

var now = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

func TestNodeNamesAreTakenOnceAndWithTheirKind(t *testing.T) {
	names, err := nodeNames([]string{"node/a", "b", "a"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, names)
	_, err = nodeNames([]string{"Node_1"})
	require.ErrorContains(t, err, "is not the name of a node")
}

func TestAgeIsADurationOrDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 30 * day, "0d": 0, "12h": 12 * time.Hour, "90m": 90 * time.Minute} {
		var a age
		require.NoError(t, a.Set(text), text)
		assert.Equal(t, want, time.Duration(a), text)
	}
	for _, text := range []string{"", "soon", "-1d", "-1h", "1.5d", "40001d", "d"} {
		var a age
		require.Error(t, a.Set(text), text)
	}
}

func TestListIsSortedWithTheUnknownLast(t *testing.T) {
	all := []inspect.Summary{
		{Name: "none"},
		{Name: "old", Version: "9", SavedAt: ago(time.Hour)},
		{Name: "new", Version: "10", SavedAt: ago(time.Minute)},
	}
	for by, want := range map[string]string{"version": "old new none", "saved": "old new none", "name": "none old new"} {
		got := append([]inspect.Summary(nil), all...)
		slices.SortStableFunc(got, orders[by])
		var names []string
		for _, s := range got {
			names = append(names, s.Name)
		}
		assert.Equal(t, want, strings.Join(names, " "), by)
	}
}

func TestStatusSaysWhatIsStuck(t *testing.T) {
	pending := func(node string, created time.Time) inspect.Pending {
		return inspect.Pending{Transaction: txn.Transaction{Type: txn.Updated, Node: node}, Created: created}
	}
	malformed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "notes"}}
	_, reason := queue.Parse(malformed)
	s := newStatus(&inspect.Survey{
		Nodes: []inspect.Summary{
			{Name: "live", State: inspect.Live, Version: "7", RestoredAt: ago(time.Hour)},
			{Name: "latest", State: inspect.Live, Version: "8", RestoredAt: ago(time.Minute)},
			{Name: "broken", State: inspect.Unreadable, Problem: "why"},
			{Name: "new", State: inspect.NeverSeen},
		},
		Pending:   []inspect.Pending{pending("slow", now.Add(-2*time.Minute)), pending("slow", now.Add(-90*time.Second)), pending("quick", now)},
		Malformed: []inspect.Malformed{{Object: malformed, Reason: reason}},
	}, now, time.Minute)
	assert.Equal(t, 3, s.Records)
	assert.Equal(t, pendingStatus{Transactions: 3, Nodes: 2, Oldest: ago(2 * time.Minute), OldestNode: "slow"}, s.Pending)
	assert.Equal(t, []restoration{{"latest", ago(time.Minute)}, {"live", ago(time.Hour)}}, s.Restored)
	var stuck []string
	for _, p := range s.Stuck {
		stuck = append(stuck, p.Name)
	}
	assert.Equal(t, []string{"broken", "notes", "slow"}, stuck, "each node once")
	var shown bytes.Buffer
	s.write(&shown, now, false)
	assert.Contains(t, shown.String(), "Stuck:          3 things")
	assert.Contains(t, shown.String(), "no watcher, no processor")
}

func TestWatchTellsWhenANodeIsForgotten(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("7"), Source: "u"}
	saved, floor := r.ConfigMap("ns"), preserve.Forgotten("node-1", nil, revision.MustParse("9")).ConfigMap("ns")
	for name, tc := range map[string]struct {
		change change[*corev1.ConfigMap]
		want   string
	}{
		"saved":            {change[*corev1.ConfigMap]{after: saved}, "saved"},
		"forgotten":        {change[*corev1.ConfigMap]{before: saved, after: floor}, "forgotten"},
		"deleted":          {change[*corev1.ConfigMap]{before: saved}, "forgotten"},
		"a floor goes":     {change[*corev1.ConfigMap]{before: floor}, ""},
		"saved again":      {change[*corev1.ConfigMap]{before: floor, after: saved}, "saved"},
		"there before":     {change[*corev1.ConfigMap]{after: saved, isInitial: true}, ""},
		"nothing has come": {change[*corev1.ConfigMap]{before: saved, after: saved}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var shown bytes.Buffer
			told := &teller{w: &shown, now: func() time.Time { return now }}
			told.record(tc.change)
			if tc.want == "" {
				assert.Empty(t, shown.String())
			} else {
				assert.Contains(t, shown.String(), tc.want)
			}
		})
	}
}

func TestWhyARequestDoesNothing(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("7"), Source: "owner"}
	for says, tc := range map[string]struct {
		typ  txn.Type
		uid  types.UID
		rack string
	}{
		"its labels are those on record": {txn.Updated, "owner", "r1"},
		"kubectl nodekeeper diff":        {txn.Added, "owner", "r2"},
		"it has not got its saved":       {txn.Updated, "stranger", "r2"},
	} {
		live := nodes.Metadata("node-1")
		live.UID, live.ResourceVersion, live.Labels = tc.uid, "9", map[string]string{"rack": tc.rack}
		n := &inspect.Node{Name: "node-1", Live: live, Saved: inspect.Saved{Record: &r}}
		h := &requesting{Requests: byhand.Requests{Type: tc.typ, Done: "saved", Policy: func(string) labels.Policy { return labels.Policy{Mode: labels.Replace} }}}
		request, err := h.Of(n, "node-1")
		require.NoError(t, err)
		assert.Contains(t, h.why(&request), says)
	}
}
