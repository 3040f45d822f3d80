package cli

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/service/settings"
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

func TestStatusReportsStuckWork(t *testing.T) {
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
			{Name: "new", State: inspect.NeverSeen, GatedSince: ago(time.Second)},
			{Name: "tainted", State: inspect.Restoring, GatedSince: ago(2 * time.Minute)},
		},
		Pending:   []inspect.Pending{pending("slow", now.Add(-2*time.Minute)), pending("slow", now.Add(-90*time.Second)), pending("quick", now)},
		Malformed: []inspect.Malformed{{Object: malformed, Reason: reason}},
	}, nil, now, time.Minute)
	assert.Equal(t, 3, s.Records)
	assert.Equal(t, pendingStatus{Transactions: 3, Nodes: 2, Oldest: ago(2 * time.Minute), OldestNode: "slow"}, s.Pending)
	assert.Equal(t, []restoration{{"latest", ago(time.Minute)}, {"live", ago(time.Hour)}}, s.Restored)
	var stuck []string
	for _, p := range s.Stuck {
		stuck = append(stuck, p.Name)
	}
	assert.Equal(t, []string{"broken", "notes", "slow", "tainted"}, stuck, "each node once")
	var shown bytes.Buffer
	s.write(&shown, now, false)
	assert.Contains(t, shown.String(), "Stuck:          4 things")
	assert.Contains(t, shown.String(), "tainted: it has been waiting for 2m for its labels behind the taint nodekeeper.dev/restoring\n")
	assert.Contains(t, shown.String(), "kubectl taint node tainted nodekeeper.dev/restoring-")
	assert.Contains(t, shown.String(), "no watcher, no processor")
}

// TestWithheldAnnotationsAndTaintsAreNamed as kubectl names them.
func TestWithheldAnnotationsAndTaintsAreNamed(t *testing.T) {
	var shown bytes.Buffer
	writeWithheld(&shown, []shownWithheld{{
		Labels: map[string]string{"a/b": "1", labels.AnnotationKey("c/d"): "2", labels.TaintKey("e", "NoSchedule"): "3", labels.TaintKey("f", "NoExecute"): ""},
		Reason: "why",
	}})
	assert.Equal(t, "Withheld:       1 label, 1 annotation, 2 taints: why\n  a/b=1\n  annotation c/d=2\n  taint e=3:NoSchedule\n  taint f:NoExecute\n", shown.String())
}

// TestLongQueueIsNotStuckWhileItIsApplied: nodes that the queue does not hold up stay stuck, and so
// do those that others have overtaken.
func TestLongQueueIsNotStuckWhileItIsApplied(t *testing.T) {
	pending := func(typ txn.Type, node string, ago time.Duration) inspect.Pending {
		return inspect.Pending{Transaction: txn.Transaction{Type: typ, Node: node}, Created: now.Add(-ago)}
	}
	late := func(by time.Duration) *metav1.Duration { return &metav1.Duration{Duration: by} }
	survey := &inspect.Survey{
		Nodes: []inspect.Summary{
			{Name: "leaving", State: inspect.Live, DeletionWaitsSince: ago(2 * time.Minute), Pending: 1},
			{Name: "overtaken", State: inspect.Restoring, GatedSince: ago(time.Hour), Pending: 2},
			{Name: "queued", State: inspect.Restoring, GatedSince: ago(2 * time.Minute), Pending: 1},
			{Name: "tainted", State: inspect.Restoring, GatedSince: ago(2 * time.Minute)},
		},
		Pending: []inspect.Pending{
			pending(txn.Added, "overtaken", time.Hour), pending(txn.Updated, "overtaken", time.Minute),
			pending(txn.Added, "queued", 2*time.Minute), pending(txn.Deleted, "leaving", 2*time.Minute),
		},
		Replicas: []inspect.Replica{
			{Name: "p", Service: inspect.ProcessorService, IsAlive: true, LateBy: late(time.Minute)},
			{Name: "q", Service: inspect.ProcessorService, IsAlive: true, LateBy: late(50 * time.Second)},
			{Name: "r", Service: inspect.ProcessorService, IsAlive: true},
		},
	}
	stuck := func() (names []string) {
		for _, one := range newStatus(survey, nil, now, time.Minute).Stuck {
			names = append(names, one.Name)
		}
		return names
	}
	assert.Equal(t, []string{"overtaken", "overtaken", "tainted"}, stuck(), "its queue and its taint, and a taint without a queue")
	var shown bytes.Buffer
	newStatus(survey, nil, now, time.Minute).write(&shown, now, false)
	assert.Contains(t, shown.String(), "the oldest for 60m (overtaken); the processors are catching up\n")

	survey.Replicas[1].LateBy = late(time.Hour)
	assert.Equal(t, []string{"tainted"}, stuck(), "what a processor applies has waited for as long")
	survey.Replicas[0].LateBy, survey.Replicas[1].LateBy = nil, nil
	assert.Equal(t, []string{"overtaken", "queued", "leaving", "leaving", "overtaken", "queued", "tainted"}, stuck())
	survey.Replicas[0].LateBy, survey.Pending, survey.Nodes = late(time.Minute), nil, nil
	assert.False(t, newStatus(survey, nil, now, time.Minute).Pending.CatchingUp, "nothing is left")
}

// TestStatusShowsSharedSettingsOnce: of replicas in a row with the same settings.
func TestStatusShowsSharedSettingsOnce(t *testing.T) {
	of := func(name string, own settings.Settings) inspect.Replica {
		return inspect.Replica{Name: name, Service: inspect.ProcessorService, IsAlive: true, Version: "v1", Settings: own}
	}
	shared := settings.Settings{"restore-mode": "merge"}
	var shown bytes.Buffer
	writeReplicas(&shown, []inspect.Replica{of("a", nil), of("b", nil), of("c", shared), of("d", maps.Clone(shared)), of("e", settings.Settings{"restore-mode": "replace"})}, now, true)
	assert.Contains(t, shown.String(), "  a: alive, v1\n  b: alive, v1\n  c: alive, v1, settings as below\n  d: alive, v1\n    restore-mode=merge\n  e: alive, v1\n    restore-mode=replace\n")
}

// TestStatusReportsThatNoWebhookIsReady only where the API server asks one: the webhook is
// optional.
func TestStatusReportsThatNoWebhookIsReady(t *testing.T) {
	const none = "no ready webhook for MutatingWebhookConfiguration nodekeeper"
	ready := inspect.Replica{Name: "ready", Service: inspect.WebhookService, IsAlive: true}
	starting := inspect.Replica{Name: "starting", Service: inspect.WebhookService, IsAlive: true, IsStandby: true}
	dead := inspect.Replica{Name: "dead", Service: inspect.WebhookService}
	for name, tc := range map[string]struct {
		asked  bool
		are    []inspect.Replica
		unwell []string
		shown  string
	}{
		"none":              {false, nil, []string{}, "1 of 1 watcher alive, 1 of 1 processor alive\n"},
		"not asked":         {false, []inspect.Replica{starting}, []string{}, "alive, 0 of 1 webhook ready\n"},
		"asked, none":       {true, nil, []string{none}, "alive, no webhook\n"},
		"asked, none ready": {true, []inspect.Replica{starting, dead}, []string{none}, "alive, 0 of 2 webhooks ready\n"},
		"asked, one ready":  {true, []inspect.Replica{starting, ready}, []string{}, "alive, 1 of 2 webhooks ready\n"},
	} {
		t.Run(name, func(t *testing.T) {
			watcher := inspect.Replica{Name: "w", Service: inspect.WatcherService, IsAlive: true, IsStandby: true}
			processor := inspect.Replica{Name: "p", Service: inspect.ProcessorService, IsAlive: true}
			s := newStatus(&inspect.Survey{Replicas: append(tc.are, watcher, processor), AsksWebhooks: tc.asked}, nil, now, time.Minute)
			assert.Equal(t, tc.unwell, s.Unwell)
			var shown bytes.Buffer
			s.write(&shown, now, true)
			assert.Contains(t, shown.String(), tc.shown)
			assert.Equal(t, len(tc.are) > 0, strings.Contains(shown.String(), "  starting: alive but not ready, unknown version\n"))
		})
	}
}

func TestShowReportsWhyANodeIsGated(t *testing.T) {
	const waits = "  Restored:     not yet: for 2m it has been waiting behind the taint nodekeeper.dev/restoring for a processor to "
	saved := inspect.Saved{Record: &record.Record{Node: "node-1", Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("7"), Source: "owner"}}
	added := []inspect.Pending{{Transaction: txn.Transaction{Type: txn.Added, Node: "node-1", UID: "u", Revision: revision.MustParse("9")}, Created: now}}
	for name, tc := range map[string]struct {
		marker string
		saved  inspect.Saved
		txns   []inspect.Pending
		want   string
	}{
		"restored":             {"7", saved, nil, "  Restored:     2m ago, from version 7\n"},
		"gated":                {labels.Pending, saved, added, waits + "restore its labels\n"},
		"gated, never seen":    {labels.Pending, inspect.Saved{}, added, waits + "save its labels\n"},
		"gated, nothing to do": {labels.Pending, saved, nil, waits + "restore its labels; nothing is pending: kubectl nodekeeper restore node-1\n"},
		"gated, unreadable":    {labels.Pending, inspect.Saved{Unreadable: record.ErrUnreadable, Object: &corev1.ConfigMap{}}, added, waits + "restore its labels\n"},
	} {
		t.Run(name, func(t *testing.T) {
			live := nodes.Metadata("node-1")
			live.UID, live.ResourceVersion, live.Labels = "u", "9", map[string]string{labels.Marker: tc.marker}
			live.CreationTimestamp = *ago(time.Hour)
			live.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ago(2 * time.Minute), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`)}}
			n := &inspect.Node{Name: "node-1", Live: nodeview.View{}.OfMetadata(live), Saved: tc.saved, Pending: tc.txns}
			var shown bytes.Buffer
			newShownNode(n, labels.Policy{}).write(&shown, now)
			assert.Contains(t, shown.String(), tc.want)
			assert.NotContains(t, shown.String(), "from version pending")
		})
	}
}

func TestWatchReportsThatANodeIsForgotten(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: map[string]string{"rack": "r1"}, Revision: revision.MustParse("7"), Source: "u"}
	saved, floor := r.ConfigMap("ns"), preserve.Forgotten("node-1", nil, nil, revision.MustParse("9")).ConfigMap("ns")
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
			p := &happeningPrinter{w: &shown, now: func() time.Time { return now }}
			p.record(tc.change)
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
		"it does not have its saved":     {txn.Updated, "stranger", "r2"},
	} {
		live := &nodeview.Node{Name: "node-1", UID: tc.uid, Revision: revision.MustParse("9"), Labels: map[string]string{"rack": tc.rack}}
		n := &inspect.Node{Name: "node-1", Live: live, Saved: inspect.Saved{Record: &r}}
		h := &requesting{Requests: byhand.Requests{Cluster: &inspect.Cluster{}, Type: tc.typ, Done: "saved", Policy: func(string) labels.Policy { return labels.Policy{Mode: labels.Replace} }}}
		request, err := h.Of(n, "node-1")
		require.NoError(t, err)
		assert.Contains(t, h.why(&request), says)
	}
}
