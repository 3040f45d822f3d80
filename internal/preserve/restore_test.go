package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// live is a Node at 300 with labels that were not restored.
func live(uid types.UID, marker string) *preserve.Node {
	n := liveStranger()
	n.UID, n.Marker = uid, marker
	return n
}

func TestDecideRestore(t *testing.T) {
	restored := preserve.Decision{Action: preserve.Restore, Labels: same, Marker: "100"}
	for name, tc := range map[string]struct {
		t    txn.Transaction
		r    *record.Record
		n    *preserve.Node
		want preserve.Decision
	}{
		// N is gone, or another incarnation than t.uid
		"gone":                        {event("stranger", "250", "", changed), saved(), nil, nothing()},
		"another incarnation":         {event("stranger", "250", "", changed), saved(), live("other", ""), nothing()},
		"another incarnation, marker": {event("stranger", "250", "", changed), saved(), live("other", "100"), nothing()},
		"another incarnation, never restored, marker": {event("stranger", "250", "", changed), neverRestored(), live("other", "100"), nothing()},
		"the source, but it is another by now":        {event("source", "250", "", changed), saved(), live("other", ""), nothing()},
		"the restored, but it is another by now":      {event("restored", "250", "", changed), saved(), live("other", ""), nothing()},

		// N.uid is R.source or R.restored.uid
		"source":                         {event("source", "250", "", changed), saved(), live("source", ""), nothing()},
		"source, marker":                 {event("source", "250", "", changed), saved(), live("source", "100"), nothing()},
		"source, another marker":         {event("source", "250", "", changed), saved(), live("source", "99"), nothing()},
		"source, never restored":         {event("source", "250", "", changed), neverRestored(), live("source", ""), nothing()},
		"source, never restored, marker": {event("source", "250", "", changed), neverRestored(), live("source", "100"), nothing()},
		"restored":                       {event("restored", "250", "", changed), saved(), live("restored", ""), nothing()},
		"restored, marker":               {event("restored", "250", "", changed), saved(), live("restored", "100"), nothing()},
		"restored, another marker":       {event("restored", "250", "", changed), saved(), live("restored", "99"), nothing()},

		// N.marker = R.version
		"marker":                        {event("stranger", "250", "", changed), saved(), live("stranger", "100"), noted(saved(), "300")},
		"marker, never restored":        {event("stranger", "250", "", changed), neverRestored(), live("stranger", "100"), noted(saved(), "300")},
		"marker, also at its add":       {event("stranger", "250", "100", changed), saved(), live("stranger", "100"), noted(saved(), "300")},
		"marker, added before the save": {event("stranger", "50", "", changed), saved(), live("stranger", "100"), noted(saved(), "300")},

		// otherwise
		"no marker":                        {event("stranger", "250", "", changed), saved(), live("stranger", ""), restored},
		"no marker, never restored":        {event("stranger", "250", "", changed), neverRestored(), live("stranger", ""), restored},
		"no marker, but it had it":         {event("stranger", "250", "100", changed), saved(), live("stranger", ""), restored},
		"no marker, added before the save": {event("stranger", "50", "", changed), saved(), live("stranger", ""), restored},
		"no marker, added with the labels": {event("stranger", "250", "", same), saved(), live("stranger", ""), restored},
		"a marker of another save":         {event("stranger", "250", "", changed), saved(), live("stranger", "99"), restored},
		"a marker of the restore":          {event("stranger", "250", "", changed), saved(), live("stranger", "200"), restored},
		"made by hand": {
			event("stranger", "250", "", changed), &record.Record{Node: "node-1", Labels: same, Version: "100"}, live("stranger", ""), restored,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Type = txn.Added
			for _, tc.t.FoundsRecord = range []bool{false, true} { // there is a record
				assertDecision(t, tc.want, preserve.Decide(tc.t, tc.r, tc.n, replaceAll))
			}
		})
	}
}

func TestDecideAddedWithoutARecord(t *testing.T) {
	for name, node := range map[string]*preserve.Node{
		"gone": nil, "itself": live("stranger", ""), "itself with a marker": live("stranger", "100"), "another": live("other", ""),
	} {
		t.Run(name, func(t *testing.T) {
			tx := event("stranger", "250", "", changed)
			tx.Type = txn.Added
			assertDecision(t, nothing(), preserve.Decide(tx, nil, node, replaceAll))
			tx.FoundsRecord = true
			assertDecision(t, replaced("stranger", "250", changed), preserve.Decide(tx, nil, node, replaceAll))
		})
	}
}

// The labels on the Node now count, not those in the transaction.
func TestDecideRestoreFollowsThePolicy(t *testing.T) {
	zone, err := labels.ParsePatterns("zone")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		policy labels.Policy
		want   set
	}{
		"replace":               {labels.Policy{Mode: labels.Replace}, set{"rack": "r7", "team": "blue"}},
		"replace, a live label": {labels.Policy{Mode: labels.Replace, Live: zone}, set{"rack": "r7", "team": "blue", "zone": "b"}},
		"merge":                 {labels.Policy{Mode: labels.Merge}, set{"rack": "r7", "team": "blue", "zone": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			tx := event("stranger", "250", "", changed)
			tx.Type = txn.Added
			want := preserve.Decision{Action: preserve.Restore, Labels: tc.want, Marker: "100"}
			assertDecision(t, want, preserve.Decide(tx, saved(), liveStranger(), tc.policy))
		})
	}
}
