package preserve_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// What users have set or removed on a returned Node stays, however late its restore is.
func TestRestoreKeepsEarlierEdits(t *testing.T) {
	came := set{"pool": "default", "zone": "b", "image": "1"}
	for name, tc := range map[string]struct {
		is     set
		edited labels.Keys
		change func(t *txn.Transaction)
		want   set
	}{
		"nothing edited":             {is: came, want: set{"rack": "r7", "team": "blue", "zone": "b"}},
		"a saved label set":          {is: set{"pool": "default", "zone": "b", "team": "green"}, want: set{"rack": "r7", "team": "green", "zone": "b"}},
		"a new label set":            {is: set{"pool": "default", "zone": "b", "ticket": "1"}, want: set{"rack": "r7", "team": "blue", "ticket": "1", "zone": "b"}},
		"a label changed":            {is: set{"pool": "gold", "zone": "b"}, want: set{"rack": "r7", "team": "blue", "pool": "gold", "zone": "b"}},
		"a label of the machine's":   {is: set{"pool": "default", "zone": "c"}, want: set{"rack": "r7", "team": "blue", "zone": "c"}},
		"a saved label removed":      {is: set{"zone": "b"}, change: func(t *txn.Transaction) { t.Labels = set{"rack": "r7", "zone": "b"} }, want: set{"team": "blue", "zone": "b"}},
		"seen by the fields only":    {is: set{"team": "green"}, edited: "team", change: func(t *txn.Transaction) { t.Labels = set{"team": "green"} }, want: set{"rack": "r7", "team": "green"}},
		"a user's restore request":   {is: set{"team": "green", "ticket": "1"}, edited: "team,ticket", change: func(t *txn.Transaction) { t.AtOnce = true }, want: set{"rack": "r7", "team": "blue"}},
		"an urgent addition":         {is: set{"team": "green"}, edited: "team", change: func(t *txn.Transaction) { t.AtOnce, t.FoundsRecord = true, true }, want: set{"rack": "r7", "team": "green"}},
		"removed after a restore":    {is: set{"rack": "r6"}, edited: labels.Marker, change: func(t *txn.Transaction) { t.Labels = set{"team": "x"} }, want: set{"rack": "r7", "team": "blue"}},
		"what a restore set, before": {is: set{"rack": "r6", "team": "green"}, edited: "team," + labels.Marker, want: set{"rack": "r7", "team": "green"}},
	} {
		t.Run(name, func(t *testing.T) {
			added := of(txn.Added, event("stranger", "250", "", came))
			if tc.change != nil {
				tc.change(&added)
			}
			n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: tc.is, Marker: "90", Ownership: agents.Ownership{Machine: "zone", Edited: tc.edited}}
			d := preserve.Decide(added, saved(), n, replaceAll)
			require.Equal(t, preserve.Restore, d.Action, d.Reason)
			assert.Equal(t, tc.want, d.Labels)
		})
	}
}

// returnedWith returns the addition of a Node, and its updates, given its labels in each of its states.
func returnedWith(states []set) (queue []txn.Transaction) {
	for i, own := range states {
		queue = append(queue, of(txn.Updated, event("stranger", strconv.Itoa(250+i), "", own)))
	}
	queue[0].Type = txn.Added
	return queue
}

// What users have set and removed again before a restore stays away, although the live Node does not
// show that.
func TestRestoreKeepsRemovalsThatTheQueueShows(t *testing.T) {
	bare, labelled := set{"zone": "b"}, set{"zone": "b", "team": "green"}
	for name, tc := range map[string]struct {
		states []set
		change func(states []txn.Transaction)
		want   set
	}{
		"removed again":           {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "zone": "b"}},
		"set and removed earlier": {states: []set{bare, labelled, bare, {"zone": "b", "x": "y"}, bare}, want: set{"rack": "r7", "zone": "b"}},
		"set by an agent": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[1].Machine = "team"
		}},
		"set by an unknown manager": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[1].Unclear = "team"
		}},
		"taken over by an agent": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[2].Labels, states[2].Machine = set{"zone": "b", "team": "agent's"}, "team"
		}},
		"taken over and withdrawn by an agent": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			taken := states[2]
			taken.Labels, taken.Machine = set{"zone": "b", "team": "agent's"}, "team"
			states[2].Withdrawn = "team" // as a watcher that saw both reports
			states[2] = preserve.Merged(taken, states[2])
		}},
		"set at the creation, and taken over and withdrawn by an agent": {states: []set{labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[1].Withdrawn = "team"
		}},
		"undone with etcd": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[1].Ahead = true
		}},
		"removed before a restore that is done again": {states: []set{bare, labelled, bare, bare}, want: set{"rack": "r7", "zone": "b"}, change: func(states []txn.Transaction) {
			states[3].Restored, states[3].Marker = true, "90"
		}},
		"restored in between": {states: []set{bare, labelled, bare}, want: set{"rack": "r7", "team": "blue", "zone": "b"}, change: func(states []txn.Transaction) {
			states[2].Restored, states[2].Marker = true, "90"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := returnedWith(tc.states)
			if tc.change != nil {
				tc.change(queue)
			}
			n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: bare, Ownership: agents.Ownership{Machine: "zone"}}
			d := preserve.Decide(preserve.WithQueuedEdits(queue)[0], saved(), n, replaceAll)
			require.Equal(t, preserve.Restore, d.Action, d.Reason)
			assert.Equal(t, tc.want, d.Labels)
		})
	}
}

// A watcher without the flag sees no annotations, and the setter of a taint is unknown.
func TestRestoreKeepsEarlierEditsOfAnnotations(t *testing.T) {
	const owner, dedicated = string(annotation), string(taint)
	for name, tc := range map[string]struct {
		came, is set
		machine  labels.Keys // of those that it came with
		policy   labels.Policy
		want     set
	}{
		"removed":                         {came: set{owner: "a"}, is: set{}, policy: withPreserved, want: set{dedicated: "db"}},
		"changed":                         {came: set{owner: "a"}, is: set{owner: "b"}, policy: withPreserved, want: set{owner: "b", dedicated: "db"}},
		"removed by the machine":          {came: set{owner: "a"}, is: set{}, machine: annotation, policy: withPreserved, want: set{owner: "saved", dedicated: "db"}},
		"not seen by the watcher":         {came: set{}, is: set{owner: "b"}, policy: withPreserved, want: set{owner: "saved", dedicated: "db"}},
		"not kept by the processor":       {came: set{owner: "a"}, is: set{}, policy: replaceAll, want: set{}},
		"a taint, if its setter is clear": {came: set{dedicated: "db"}, is: set{}, policy: withPreserved, want: set{owner: "saved"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := saved()
			r.Labels = set{owner: "saved", dedicated: "db"}
			added := of(txn.Added, event("stranger", "250", "", tc.came))
			added.Machine = tc.machine
			n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: tc.is}
			assert.Equal(t, tc.want, preserve.Decide(added, r, n, tc.policy).Labels)

			added.Unclear = taint // as agents report every taint that is not the machine's
			got := preserve.Decide(added, r, n, withPreserved).Labels
			assert.Equal(t, "db", got[dedicated])
		})
	}
}

// An earlier record, as from a backup, has taken the place of the one that was restored.
func TestEarlierRecordChangesNoNode(t *testing.T) {
	node := func(marker string, edited labels.Keys) *nodeview.Node {
		return &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: changed, Marker: marker, Ownership: agents.Ownership{Edited: edited}}
	}
	isAdded := of(txn.Added, event("stranger", "290", "150", changed))
	request := isAdded
	request.AtOnce = true
	for name, tc := range map[string]struct {
		added txn.Transaction
		n     *nodeview.Node
		want  preserve.Action
	}{
		"a later marker":                       {isAdded, node("150", labels.Marker), preserve.Save},
		"an earlier marker":                    {isAdded, node("99", labels.Marker), preserve.Restore},
		"a marker of another history":          {isAdded, node("301", labels.Marker), preserve.Restore},
		"a marker that was copied onto it":     {isAdded, node("150", ""), preserve.Restore},
		"a later marker, and a user's request": {request, node("150", labels.Marker), preserve.Restore},
	} {
		t.Run(name, func(t *testing.T) {
			d := preserve.Decide(tc.added, neverRestored(), tc.n, replaceAll)
			require.Equal(t, tc.want, d.Action, d.Reason)
			if tc.want == preserve.Save {
				assert.Equal(t, changed, d.Record.Labels)
				assert.True(t, preserve.Owned(d.Record, "stranger", ""), "the record follows the Node from now on")
			}
		})
	}
}

// Only a marker that someone else is known to have set counts as copied: the API server merges the
// oldest of more than ten field managers, and the processor is among them.
func TestEarlierRecordChangesNoNodeWithMergedManagers(t *testing.T) {
	const marker = `{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`
	for manager, want := range map[string]preserve.Action{"ancient-changes": preserve.Save, "kubectl-create": preserve.Restore} {
		t.Run(manager, func(t *testing.T) {
			n := nodeview.View{}.OfMetadata(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				UID: "stranger", ResourceVersion: "300", Labels: set{"team": "new", labels.Marker: "150"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(marker)}},
			}})
			for _, x := range []txn.Transaction{txn.Of(txn.Added, n), txn.Of(txn.Updated, n)} {
				d := preserve.Decide(x, neverRestored(), n, replaceAll)
				require.Equal(t, want, d.Action, d.Reason)
				if want == preserve.Save {
					assert.Equal(t, set{"team": "new"}, d.Record.Labels, "what was removed stays away")
				}
			}
		})
	}
}

func TestStateAfterALaterRestoreIsSaved(t *testing.T) {
	for _, typ := range []txn.Type{txn.Updated, txn.Deleted} {
		for name, tc := range map[string]struct {
			marker   string
			restored bool
			want     preserve.Action
		}{
			"a later marker":                {"150", true, preserve.Save},
			"an earlier marker":             {"99", true, preserve.Nothing},
			"a marker of another history":   {"301", true, preserve.Nothing},
			"a marker copied from another":  {"150", false, preserve.Nothing},
			"of a release without the note": {"", false, preserve.Nothing},
		} {
			t.Run(string(typ)+", "+name, func(t *testing.T) {
				x := of(typ, event("stranger", "300", tc.marker, changed))
				x.Restored = tc.restored
				d := preserve.Decide(x, neverRestored(), nil, replaceAll)
				assert.Equal(t, tc.want, d.Action, d.Reason)
			})
		}
	}
}

// The record follows another incarnation than the live one, and nothing else would ever change that
// while the watchers run.
func TestUpdateOfAStrandedNodeRestores(t *testing.T) {
	n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: set{"team": "green"}, Ownership: agents.Ownership{Edited: "team"}}
	for name, tc := range map[string]struct {
		change func(t *txn.Transaction, n *nodeview.Node)
		want   preserve.Action
	}{
		"the live incarnation":             {nil, preserve.Restore},
		"and at once":                      {func(t *txn.Transaction, _ *nodeview.Node) { t.AtOnce = true }, preserve.Restore},
		"another incarnation":              {func(t *txn.Transaction, _ *nodeview.Node) { t.UID = "other" }, preserve.Nothing},
		"its end":                          {func(t *txn.Transaction, _ *nodeview.Node) { t.Type = txn.Deleted }, preserve.Nothing},
		"of before the restore onto other": {func(t *txn.Transaction, _ *nodeview.Node) { t.Revision = revision.MustParse("200") }, preserve.Nothing},
		"a Node that is not selected":      {func(_ *txn.Transaction, n *nodeview.Node) { n.Unselected = true }, preserve.Nothing},
	} {
		t.Run(name, func(t *testing.T) {
			live, update := *n, of(txn.Updated, event("stranger", "300", "", n.Labels))
			if tc.change != nil {
				tc.change(&update, &live)
			}
			steps := preserve.Plan([]txn.Transaction{update}, saved(), &live, replaceAll)
			assert.Equal(t, tc.want, steps[0].Action)
			if tc.want == preserve.Restore {
				assert.True(t, preserve.NeedsNode([]txn.Transaction{update}, saved(), labels.MachineBound{}))
				assert.Equal(t, set{"rack": "r7", "team": "green"}, steps[0].Labels)
			}
		})
	}
}

// The webhook has restored an earlier record, the user has removed a label since, and the processor
// restores the later record.
func TestRemovalAfterTheWebhooksRestoreStays(t *testing.T) {
	added := of(txn.Added, event("stranger", "250", "90", set{"rack": "r6", "team": "blue"})) // as the webhook left it
	n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: set{"rack": "r6"}, Marker: "90", Ownership: agents.Ownership{Edited: labels.Marker, Admitted: "rack," + labels.Marker}}
	d := preserve.Decide(added, saved(), n, replaceAll)
	require.Equal(t, preserve.Restore, d.Action, d.Reason)
	assert.NotContains(t, d.Labels, "team", "a user has removed it after the restore (promise 3)")
}

// A gated Node has not been restored; a user removes a label that it came with.
func TestRemovalBehindAClosedGateStays(t *testing.T) {
	for name, manager := range map[string]string{"gated by Karpenter": "karpenter", "gated by the webhook": agents.Webhook} {
		t.Run(name, func(t *testing.T) {
			added := of(txn.Added, event("stranger", "250", labels.Pending, set{"rack": "r7", "team": "blue"}))
			live := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				UID: "stranger", ResourceVersion: "300", Labels: set{"rack": "r7", labels.Marker: labels.Pending},
				ManagedFields: []metav1.ManagedFieldsEntry{
					{Manager: "kubectl-create", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:rack":{}}}}`)},
					{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`)},
				},
			}}
			managers, err := agents.Parse(agents.Default)
			require.NoError(t, err)
			n := nodeview.View{Agents: managers}.OfMetadata(live)
			d := preserve.Decide(added, saved(), n, replaceAll)
			require.Equal(t, preserve.Restore, d.Action, d.Reason)
			assert.NotContains(t, d.Labels, "team")
			assert.False(t, n.IsRestored(), "a closed gate is no restore")
		})
	}
}

// import --overwrite has stored labels for a live Node, whose label changes before the request.
func TestRequestAfterAStrandedUpdate(t *testing.T) {
	userRecord := preserve.UserRecord("node-1", labels.Side{Labels: set{"team": "imported"}}, revision.MustParse("260"))
	n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: set{"team": "live", "ticket": "1"}, Ownership: agents.Ownership{Edited: "team,ticket"}}
	update := of(txn.Updated, event("stranger", "280", "", n.Labels))
	request := of(txn.Added, event("stranger", "300", "", n.Labels))
	request.AtOnce = true
	alone := preserve.Plan([]txn.Transaction{request}, &userRecord, n, replaceAll)
	require.Equal(t, set{"team": "imported"}, alone[0].Labels)
	steps := preserve.Plan([]txn.Transaction{update, request}, &userRecord, n, replaceAll)
	last := steps[0]
	for _, s := range steps {
		if s.Action == preserve.Restore {
			last = s
		}
	}
	assert.Equal(t, set{"team": "imported"}, last.Labels, "the user has asked to replace the live labels")
}

// A Node is edited and restored. Then the last change of the former incarnation is saved, before the
// restore is noted, so it is repeated.
func TestRepeatedRestoreKeepsEditsFromBeforeTheFirst(t *testing.T) {
	queue := []txn.Transaction{
		of(txn.Added, event("stranger", "250", "", set{"zone": "b", "tier": "new"})),
		of(txn.Updated, event("stranger", "251", "", set{"zone": "b", "team": "green"})),
	}
	n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Marker: "90", Labels: set{"zone": "b", "team": "green", "rack": "r6"}}
	n.Edited, n.Machine = labels.Marker, "zone"
	for name, tc := range map[string]struct {
		team, want string
	}{
		"kept by the first":     {"green", "green"},
		"replaced by the first": {"red", "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			n.Labels["team"] = tc.team
			d := preserve.Decide(preserve.WithQueuedEdits(slices.Clone(queue))[0], saved(), n, replaceAll)
			require.Equal(t, preserve.Restore, d.Action, d.Reason)
			assert.Equal(t, set{"rack": "r7", "team": tc.want, "zone": "b"}, d.Labels)
		})
	}
}

// A roll of the watchers: those without the flag see no annotations.
func TestAnnotationsThatAreMissingInTheQueue(t *testing.T) {
	const owner = string(annotation)
	for name, tc := range map[string]struct {
		states   []set
		is, want set
	}{
		"not seen by one watcher":                   {states: []set{{owner: "a"}, {}}, is: set{owner: "a"}, want: set{owner: "saved"}},
		"not seen by one watcher, and then another": {states: []set{{owner: "a"}, {}, {owner: "a"}}, is: set{owner: "a"}, want: set{owner: "saved"}},
		"set and removed again":                     {states: []set{{}, {owner: "a"}, {}}, is: set{}, want: set{}},
		"set, not seen by one watcher, and removed": {states: []set{{}, {owner: "a"}, {}, {owner: "a"}, {}}, is: set{}, want: set{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := saved()
			r.Labels = set{owner: "saved"}
			queue := returnedWith(tc.states)
			n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: tc.is}
			d := preserve.Decide(preserve.WithQueuedEdits(queue)[0], r, n, withPreserved)
			assert.Equal(t, tc.want, d.Labels)
		})
	}
}

// A request by hand reports no setters, and the API server forgets them once a Node has many.
func TestStateWithoutSettersHidesNoEdit(t *testing.T) {
	bare, green, red := set{"zone": "b"}, set{"zone": "b", "team": "green"}, set{"zone": "b", "team": "red"}
	for name, tc := range map[string]struct {
		states      []set
		since       int // how many states follow the one without setters
		live, want  set
		isForgotten bool // the Node shows no setters, and all states do
	}{
		"set":                        {states: []set{bare, green, green}, live: green, want: set{"rack": "r7", "team": "green", "zone": "b"}},
		"changed":                    {states: []set{green, red, red}, live: red, want: set{"rack": "r7", "team": "red", "zone": "b"}},
		"set, and removed":           {states: []set{bare, green, green, bare}, since: 1, live: bare, want: set{"rack": "r7", "zone": "b"}},
		"removed from the Node":      {states: []set{green, green}, live: bare, want: set{"rack": "r7", "zone": "b"}},
		"unclear on the Node":        {states: []set{bare, green}, live: green, isForgotten: true, want: set{"rack": "r7", "team": "green", "zone": "b"}},
		"changed by who knows":       {states: []set{bare, green, red}, live: red, want: set{"rack": "r7", "team": "blue", "zone": "b"}},
		"unclear from the beginning": {states: []set{green}, live: bare, want: set{"rack": "r7", "team": "blue", "zone": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := returnedWith(tc.states)
			n := &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: tc.live, Ownership: agents.Ownership{Machine: "zone"}}
			if tc.isForgotten {
				n.Unclear = "team"
			} else {
				queue[len(queue)-1-tc.since].Unclear = "team,zone"
			}
			d := preserve.Decide(preserve.WithQueuedEdits(queue)[0], saved(), n, replaceAll)
			require.Equal(t, preserve.Restore, d.Action, d.Reason)
			assert.Equal(t, tc.want, d.Labels)
		})
	}
}
