package preserve_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// end is the end of an incarnation that users have edited.
func end(rv, marker string, own set, edited labels.Keys) txn.Transaction {
	t := of(txn.Deleted, event("stranger", rv, marker, own))
	t.Edited, t.ObservedAt = edited, time.Unix(1, 0)
	return t
}

// A processor that started after a label was removed does not know of it, and may be the first to store
// the end. The watcher that saw the removal has recorded the same end.
func TestRemovalThatOnlyTheWatcherSaw(t *testing.T) {
	for name, own := range map[string]set{"with another edit": {"ticket": "1"}, "alone": {"team": "blue"}} {
		t.Run(name, func(t *testing.T) {
			r := saved() // rack=r7, team=blue
			r.Ended = true
			policy := labels.Policy{Mode: labels.Replace}
			seen := end("300", "", own, labels.KeysOf(maps.Keys(own)))
			seen.ByProcessor = true
			first := preserve.Decide(seen, r, nil, policy)
			require.Equal(t, preserve.Save, first.Action)
			recorded := seen
			recorded.ByProcessor, recorded.Edited = false, seen.Edited.Union("rack")
			second := preserve.Decide(recorded, &first.Record, nil, policy)
			require.Equal(t, preserve.Save, second.Action)
			assert.NotContains(t, second.Record.Labels, "rack")
			assert.Equal(t, "300", second.Record.Revision.String())
			assert.Equal(t, preserve.Nothing, preserve.Decide(recorded, &second.Record, nil, policy).Action, "it is done")
			assert.Equal(t, preserve.Nothing, preserve.Decide(seen, &second.Record, nil, policy).Action, "nor does the other change it")
		})
	}
}

// A processor may see an end with edits before a watcher has recorded the last states of the
// incarnation before, which would count as older. A watcher records them in order.
func TestEditsThatAProcessorSawWaitForTheEndOfTheIncarnationBefore(t *testing.T) {
	seen := end("300", "", set{"rack": "r8"}, "rack")
	seen.ByProcessor = true
	for name, tc := range map[string]struct {
		isEnded bool
		end     txn.Transaction
		want    preserve.Action
	}{
		"seen by a processor, after that end is on record": {true, seen, preserve.Save},
		"seen by a processor, before":                      {false, seen, preserve.Nothing},
		"recorded by a watcher, which has missed that end": {false, end("300", "", set{"rack": "r8"}, "rack"), preserve.Save},
	} {
		t.Run(name, func(t *testing.T) {
			r := saved()
			r.Ended = tc.isEnded
			assert.Equal(t, tc.want, preserve.Decide(tc.end, r, nil, labels.Policy{Mode: labels.Replace}).Action)
		})
	}
}

// The last state of an incarnation may be on record before a processor lets it go. Its end must be,
// too, or no processor saves the edits of the next one.
func TestEndOfASavedStateIsNoted(t *testing.T) {
	t.Parallel()
	r := saved()
	last := of(txn.Deleted, event("restored", "200", "", r.Labels))
	assert.Equal(t, preserve.Nothing, preserve.Decide(last, r, nil, labels.Policy{Mode: labels.Replace}).Action, "a watcher's has a later revision")
	last.ByProcessor = true
	d := preserve.Decide(last, r, nil, labels.Policy{Mode: labels.Replace})
	require.Equal(t, preserve.Save, d.Action)
	want := *r
	want.Ended, want.EndedAt = true, last.ObservedAt
	require.Equal(t, last.Revision, want.Restored.Revision)
	assert.Equal(t, want, d.Record)
	assert.Equal(t, preserve.Nothing, preserve.Decide(last, &d.Record, nil, labels.Policy{Mode: labels.Replace}).Action, "it is done")
}

// What users have edited on a Node that ends before its restore belongs to the next one.
func TestEditsBeforeARestoreOutliveTheNode(t *testing.T) {
	former := saved() // rack=r7, team=blue
	former.Labels["pool"], former.Labels["zone"], former.Labels[role] = "a", "a", ""
	former.Machine, former.Unclear, former.Overruled = "pool,zone", "team", "gone"
	former.Identity = record.Identity{UID: "restored", Identity: machineA}
	bound, err := labels.ParseMachineBound("state.example.com/*")
	require.NoError(t, err)
	policy := labels.Policy{Mode: labels.Replace, MachineBound: bound}
	all := func(change set, without ...string) set {
		own := set{"rack": "r7", "team": "blue", "pool": "a", "zone": "a", role: ""}
		maps.Copy(own, change)
		for _, key := range without {
			delete(own, key)
		}
		return own
	}
	for name, tc := range map[string]struct {
		end       txn.Transaction
		want      set // nil: the record stays
		machine   labels.Keys
		unclear   labels.Keys
		overruled labels.Keys
	}{
		"set":                           {end("300", "", set{"ticket": "1"}, "ticket"), all(set{"ticket": "1"}), "pool,zone", "team", "gone"},
		"changed":                       {end("300", "", set{"rack": "r8"}, "rack"), all(set{"rack": "r8"}), "pool,zone", "team", "gone"},
		"removed":                       {end("300", "", set{}, "rack"), all(nil, "rack"), "pool,zone", "team", "gone"},
		"all of these":                  {end("300", "", set{"ticket": "1", "rack": "r8"}, "rack,team,ticket"), all(set{"ticket": "1", "rack": "r8"}, "team"), "pool,zone", "", "gone"},
		"of an unknown setter":          {end("300", "", set{"team": "blue"}, "team"), all(nil), "pool,zone", "", "gone"},
		"of the former machine":         {end("300", "", set{"pool": "b"}, "pool"), all(set{"pool": "b"}), "zone", "team", "gone,pool"},
		"of the former machine, gone":   {end("300", "", set{}, "pool"), all(nil, "pool"), "zone", "team", "gone,pool"},
		"of the former machine, copied": {end("300", "", set{"pool": "a"}, "pool"), nil, "", "", ""},
		"of this machine, gone": {func() txn.Transaction {
			t := end("300", "", set{}, "feature,rack")
			t.Overruled = "feature,other"
			return t
		}(), all(nil, "rack"), "pool,zone", "team", "feature,gone"},
		"overruled before":     {end("300", "", set{"gone": "back"}, "gone"), all(set{"gone": "back"}), "pool,zone", "team", "gone"},
		"nothing":              {end("300", "", set{"ticket": "1"}, ""), nil, "", "", ""},
		"restricted":           {end("300", "", set{role: "x"}, labels.Keys(role)), nil, "", "", ""},
		"a label of a machine": {end("300", "", set{"state.example.com/t": "x"}, "state.example.com/t"), nil, "", "", ""},
		"an annotation":        {end("300", "", set{string(annotation): "x"}, annotation), nil, "", "", ""},
		"behind a gate":        {end("300", labels.Pending, set{"rack": "r8"}, "rack"), all(set{"rack": "r8"}), "pool,zone", "team", "gone"},
		"with a stale marker":  {end("300", "90", set{"rack": "r8"}, "rack"), all(set{"rack": "r8"}), "pool,zone", "team", "gone"},
		"before the restore":   {end("199", "", set{"rack": "r8"}, "rack"), nil, "", "", ""},
		"before the version":   {end("99", "", set{"rack": "r8"}, "rack"), nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := preserve.Decide(tc.end, former, nil, policy)
			if tc.want == nil {
				require.Equal(t, preserve.Nothing, d.Action, "%+v", d)
				return
			}
			require.Equal(t, preserve.Save, d.Action, d.Reason)
			want := *former
			want.Labels, want.Machine, want.Unclear, want.Overruled = tc.want, tc.machine, tc.unclear, tc.overruled
			want.Revision, want.Source, want.Restored = tc.end.Revision, "restored", record.Restoration{}
			want.Ended, want.EndedAt = true, tc.end.ObservedAt
			assert.Equal(t, want, d.Record)
			again := preserve.Decide(tc.end, &d.Record, nil, policy)
			assert.Equal(t, preserve.Nothing, again.Action, "applied twice")
		})
	}
}

// A late event from before an end whose edits change nothing counts as older. The labels have the same
// revision, which the next Node may have as its marker.
func TestEditsThatChangeNothingAreNoted(t *testing.T) {
	same := end("300", "", set{"rack": "r7"}, "rack")
	for _, r := range []*record.Record{saved(), neverRestored()} {
		d := preserve.Decide(same, r, nil, replaceAll)
		require.Equal(t, preserve.Save, d.Action, d.Reason)
		want := *r
		want.Restored.Revision, want.Ended, want.EndedAt = same.Revision, true, same.ObservedAt
		if want.Restored.UID == "" {
			want.Restored.UID = "source"
		}
		assert.Equal(t, want, d.Record)
		late := end("250", "", set{"rack": "r8"}, "rack")
		late.UID = "other"
		for _, x := range []txn.Transaction{same, late} {
			assert.Equal(t, preserve.Nothing, preserve.Decide(x, &d.Record, nil, replaceAll).Action)
		}
	}
}

func TestOnlyAnEndSavesEditsBeforeARestore(t *testing.T) {
	for _, typ := range []txn.Type{txn.Added, txn.Updated} {
		earlier := end("300", "", set{"rack": "r8"}, "rack")
		earlier.Type = typ
		assert.Equal(t, preserve.Nothing, preserve.Decide(earlier, saved(), nil, replaceAll).Action)
	}
}

// A restore that is not noted shows in the marker: all labels of the end are saved.
func TestEndAfterAnUnnotedRestoreIsSavedAsAWhole(t *testing.T) {
	d := preserve.Decide(end("300", "100", set{"rack": "r8"}, "rack"), saved(), nil, replaceAll)
	require.Equal(t, preserve.Save, d.Action, d.Reason)
	assert.Equal(t, set{"rack": "r8"}, d.Record.Labels, "team was removed after the restore")
	assert.Equal(t, "stranger", string(d.Record.Source))
}

// What people have given to the name is later than a Node that had not got it yet.
func TestEditsDoNotReplaceWhatUsersHaveGivenToTheName(t *testing.T) {
	r := preserve.UserRecord("node-1", labels.Side{Labels: set{"rack": "given"}}, revision.MustParse("260"))
	assert.Equal(t, preserve.Nothing, preserve.Decide(end("300", "", set{"rack": "r8"}, "rack"), &r, nil, replaceAll).Action)
}

// Two Nodes in a row end before their restore. The one after them gets the edits of both, in whatever
// way the transactions are planned, and with the former owners of the labels.
func TestEditsOfSeveralNodesAddUp(t *testing.T) {
	owners := func(manager string, keys labels.Keys) fieldmanagers.Owners {
		return fieldmanagers.Of([]fieldmanagers.Owner{{Manager: manager, Operation: "Update", Keys: keys}})
	}
	former := neverRestored()
	former.Owners = owners("kubectl", "rack,team")
	second, third := end("210", "", set{"team": "green", "ticket": "1", "base": "x"}, "team,ticket"), end("230", "", set{"rack": "r9"}, "rack,ticket")
	second.UID, third.UID = "second", "third"
	second.Owners, third.Owners = owners("kubectl-label", "base,team,ticket"), owners("kubectl-edit", "rack")
	fourth := &nodeview.Node{Name: "node-1", UID: "fourth", Revision: revision.MustParse("240"), Labels: set{}}
	queue := []txn.Transaction{
		of(txn.Added, event("second", "201", "", set{})), second, of(txn.Added, event("third", "220", "", set{})), third, txn.Of(txn.Added, fourth),
	}
	steps := preserve.Plan(queue, former, fourth, replaceAll)
	require.Len(t, steps, 2, "one write of the record, and the restore")
	assert.Equal(t, set{"rack": "r9", "team": "green"}, steps[1].Labels)
	assert.Equal(t, "230", steps[1].Marker)
	assert.Equal(t, fieldmanagers.Of([]fieldmanagers.Owner{
		{Manager: "kubectl-edit", Operation: "Update", Keys: "rack"}, {Manager: "kubectl-label", Operation: "Update", Keys: "team"},
	}), steps[0].Record.Owners)

	r := former
	for range 2 { // one by one, and late
		for _, x := range queue[:4] {
			r, _ = apply(preserve.Decide(x, r, nil, replaceAll), r, nil)
		}
	}
	assert.Equal(t, steps[0].Record, *r)
}

// A label that the API server had refused is the person's, as are labels that wait for the machine.
func TestEditsBeforeARestoreAndWithheldLabels(t *testing.T) {
	r := neverRestored()
	r.Withheld = []record.Withheld{
		{Labels: set{"refused": "1", "other": "1"}, Source: "source", State: record.RefusedFor("stranger")},
		{Labels: set{"single": "1"}, Source: "source", State: record.RefusedFor("stranger")},
		{Labels: set{role: ""}, Source: "source", Identity: machineA, State: record.Unconfirmed("stranger", "150")},
	}
	d := preserve.Decide(end("300", "", set{"refused": "2"}, "refused,single"), r, nil, replaceAll)
	require.Equal(t, preserve.Save, d.Action, d.Reason)
	assert.Equal(t, set{"rack": "r7", "team": "blue", "refused": "2"}, d.Record.Labels)
	assert.Equal(t, []record.Withheld{
		{Labels: set{"other": "1"}, Source: "source", State: record.RefusedFor("stranger")},
		{Labels: set{role: ""}, Source: "source", Identity: machineA},
	}, d.Record.Withheld)
}

func TestEditedSince(t *testing.T) {
	state := func(own set, marker string, o agents.Ownership) *nodeview.Node {
		return &nodeview.Node{UID: "a", Labels: own, Marker: marker, Ownership: o}
	}
	came := state(set{"rack": "r1", "zone": "a", "image": "1"}, "", agents.Ownership{Machine: "zone", Unclear: "image"})
	for name, tc := range map[string]struct {
		before labels.Keys
		after  *nodeview.Node
		want   labels.Keys
	}{
		"nothing":                   {"", came, ""},
		"nothing since":             {"rack", came, "rack"},
		"set":                       {"", state(set{"rack": "r1", "zone": "a", "image": "1", "team": "x"}, "", came.Ownership), "team"},
		"changed":                   {"team", state(set{"rack": "r2", "zone": "a", "image": "1"}, "", came.Ownership), "rack,team"},
		"removed":                   {"", state(set{"zone": "a", "image": "1"}, "", came.Ownership), "rack"},
		"the machine's is gone":     {"", state(set{"rack": "r1"}, "", agents.Ownership{}), ""},
		"the machine's has changed": {"", state(set{"rack": "r1", "zone": "b", "image": "1"}, "", came.Ownership), ""},
		"an agent sets it again":    {"rack", state(set{"rack": "r1", "zone": "a", "image": "1"}, "", agents.Ownership{Machine: "rack,zone", Unclear: "image"}), ""},
		"its managers are reset":    {"rack", state(set{"rack": "r1", "zone": "a", "image": "1"}, "", agents.Ownership{Machine: "zone", Unclear: "image,rack"}), ""},
		"the gate is closed":        {"rack", state(came.Labels, labels.Pending, came.Ownership), "rack"},
		"a restore":                 {"rack", state(set{"rack": "r7"}, "100", agents.Ownership{Edited: labels.Marker}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, preserve.EditedSince(tc.before, came, tc.after))
		})
	}
}

// A watcher and a processor that protects nodes record the same end. Only one of them may have seen
// what was removed.
func TestEditsOfAnEndThatTwoProcessesRecord(t *testing.T) {
	watched, read := end("300", "", set{"ticket": "1"}, "rack,ticket"), end("300", "", set{"ticket": "1"}, "ticket")
	for _, tc := range [][2]txn.Transaction{{watched, read}, {read, watched}} {
		all := preserve.Ending(tc[0], saved(), []txn.Transaction{tc[1]})
		require.Len(t, all, 1)
		assert.Equal(t, labels.Keys("rack,ticket"), preserve.MergedEnd(all[0], saved()).Edited)
	}
}

// With --restricted-labels=keep, restricted labels belong to the name like all others.
func TestEditOfARestrictedLabelBeforeARestore(t *testing.T) {
	for mode, want := range map[labels.RestrictedMode]preserve.Action{labels.Keep: preserve.Save, labels.Drop: preserve.Nothing, labels.SameMachine: preserve.Nothing} {
		policy := labels.Policy{Mode: labels.Replace, Restricted: mode}
		d := preserve.Decide(end("300", "", set{role: ""}, labels.Keys(role)), saved(), nil, policy)
		assert.Equal(t, want, d.Action, mode)
		assert.Equal(t, want == preserve.Save, d.Record.Labels != nil && maps.Equal(d.Record.Labels, set{"rack": "r7", "team": "blue", role: ""}), mode)
	}
}
