package preserve_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// live is a Node at 300 with labels that were not restored.
func live(uid types.UID, marker string) *nodeview.Node {
	n := liveStranger()
	n.UID, n.Marker = uid, marker
	return n
}

// asItCame are the labels of [live].
var asItCame = set{"rack": "r1", "zone": "b"}

// marked is the stranger with the marker.
func marked(rv string, nodeLabels set) *nodeview.Node {
	return &nodeview.Node{UID: "stranger", Revision: revision.Of(rv), Labels: nodeLabels, Marker: "100"}
}

// noted is a Save of the unchanged record with a note that it was restored onto the stranger.
func noted(r *record.Record, rv string) preserve.Decision {
	r.Restored = record.Restoration{UID: "stranger", Revision: revision.Of(rv)}
	return preserve.Decision{Action: preserve.Save, Record: *r}
}

func TestDecideRestore(t *testing.T) {
	restored := preserve.Decision{Action: preserve.Restore, Labels: same, Marker: "100"}
	longRestore := func(r *record.Record) { r.Restored.Revision = revision.MustParse("9") }
	noLabels := func(r *record.Record) { r.Labels = nil }
	for name, tc := range map[string]struct {
		t    txn.Transaction
		r    *record.Record
		n    *nodeview.Node
		want preserve.Decision
	}{
		// N is gone, or another incarnation than t.uid
		"gone":                        {event("stranger", "250", "", changed), saved(), nil, nothing()},
		"another incarnation":         {event("stranger", "250", "", changed), saved(), live("other", ""), nothing()},
		"another incarnation, marker": {event("stranger", "250", "", changed), saved(), live("other", "100"), nothing()},
		"another incarnation, never restored, marker": {event("stranger", "250", "", changed), neverRestored(), live("other", "100"), nothing()},
		"the source, but it is another by now":        {event("source", "150", "", changed), saved(), live("other", ""), nothing()},
		"the restored, but it is another by now":      {event("restored", "150", "", changed), saved(), live("other", ""), nothing()},

		// N.uid is R.source or R.restored.uid
		"source":                         {event("source", "90", "", changed), saved(), live("source", ""), nothing()},
		"source, marker":                 {event("source", "90", "", changed), saved(), live("source", "100"), nothing()},
		"source, another marker":         {event("source", "90", "", changed), saved(), live("source", "99"), nothing()},
		"source, never restored":         {event("source", "90", "", changed), neverRestored(), live("source", ""), nothing()},
		"source, never restored, marker": {event("source", "90", "", changed), neverRestored(), live("source", "100"), nothing()},
		"restored":                       {event("restored", "90", "", changed), saved(), live("restored", ""), nothing()},
		"restored, marker":               {event("restored", "90", "", changed), saved(), live("restored", "100"), nothing()},
		"restored, another marker":       {event("restored", "90", "", changed), saved(), live("restored", "99"), nothing()},

		// N.marker = R.version, and N's resourceVersion is not after R.restored.rv
		"changed, marker, before the version":                  {event("stranger", "90", "", changed), saved(), marked("99", changed), nothing()},
		"changed, marker, after the version":                   {event("stranger", "90", "", changed), saved(), marked("150", changed), nothing()},
		"changed, marker, before the restore":                  {event("stranger", "90", "", changed), saved(), marked("199", changed), nothing()},
		"changed, marker, at the restore":                      {event("stranger", "90", "", changed), saved(), marked("200", changed), nothing()},
		"changed, marker, shorter than the restore":            {event("stranger", "90", "", changed), saved(), marked("99", changed), nothing()},
		"changed, marker, at the restore, added after it":      {event("stranger", "250", "", changed), saved(), marked("200", changed), nothing()},
		"changed, marker, a resourceVersion that is no number": {event("stranger", "90", "", changed), saved(), marked("x", changed), nothing()},
		"same, marker, before the version":                     {event("stranger", "90", "", changed), saved(), marked("99", same), nothing()},
		"same, marker, after the version":                      {event("stranger", "90", "", changed), saved(), marked("150", same), nothing()},
		"same, marker, before the restore":                     {event("stranger", "90", "", changed), saved(), marked("199", same), nothing()},
		"same, marker, at the restore":                         {event("stranger", "90", "", changed), saved(), marked("200", same), nothing()},
		"same, marker, shorter than the restore":               {event("stranger", "90", "", changed), saved(), marked("99", same), nothing()},
		"same, marker, at the restore, added after it":         {event("stranger", "250", "", changed), saved(), marked("200", same), nothing()},
		"same, marker, a resourceVersion that is no number":    {event("stranger", "90", "", changed), saved(), marked("x", same), nothing()},

		// N.marker = R.version, labels differ: replaced by N's; the transaction's labels, marker
		// and resourceVersion do not count
		"changed, marker, just after the restore":             {event("stranger", "90", "", changed), saved(), marked("201", changed), replaced("stranger", "201", changed)},
		"changed, marker, after the restore":                  {event("stranger", "90", "", changed), saved(), marked("300", changed), replaced("stranger", "300", changed)},
		"changed, marker, before the version, never restored": {event("stranger", "90", "", changed), neverRestored(), marked("99", changed), replaced("stranger", "99", changed)},
		"changed, marker, at the version, never restored":     {event("stranger", "90", "", changed), neverRestored(), marked("100", changed), replaced("stranger", "100", changed)},
		"changed, marker, after the version, never restored":  {event("stranger", "90", "", changed), neverRestored(), marked("101", changed), replaced("stranger", "101", changed)},
		"changed, marker, longer than the restore":            {event("stranger", "90", "", changed), with(saved(), longRestore), marked("10", changed), replaced("stranger", "10", changed)},
		"changed, marker, also at its add":                    {event("stranger", "250", "100", changed), saved(), marked("300", changed), replaced("stranger", "300", changed)},
		"changed, marker, added after the restore":            {event("stranger", "250", "", changed), saved(), marked("300", changed), replaced("stranger", "300", changed)},
		"changed, marker, added before the save":              {event("stranger", "50", "", changed), saved(), marked("300", changed), replaced("stranger", "300", changed)},
		"changed, marker, added with the labels":              {event("stranger", "250", "", same), saved(), marked("300", changed), replaced("stranger", "300", changed)},

		// N.marker = R.version, labels are equal: noted; the transaction's labels, marker and
		// resourceVersion do not count
		"same, marker, just after the restore":             {event("stranger", "90", "", changed), saved(), marked("201", same), noted(saved(), "201")},
		"same, marker, after the restore":                  {event("stranger", "90", "", changed), saved(), marked("300", same), noted(saved(), "300")},
		"same, marker, before the version, never restored": {event("stranger", "90", "", changed), neverRestored(), marked("99", same), noted(saved(), "99")},
		"same, marker, at the version, never restored":     {event("stranger", "90", "", changed), neverRestored(), marked("100", same), noted(saved(), "100")},
		"same, marker, after the version, never restored":  {event("stranger", "90", "", changed), neverRestored(), marked("101", same), noted(saved(), "101")},
		"same, marker, longer than the restore":            {event("stranger", "90", "", changed), with(saved(), longRestore), marked("10", same), noted(with(saved(), longRestore), "10")},
		"same, marker, also at its add":                    {event("stranger", "250", "100", changed), saved(), marked("300", same), noted(saved(), "300")},
		"same, marker, added after the restore":            {event("stranger", "250", "", changed), saved(), marked("300", same), noted(saved(), "300")},
		"same, marker, added before the save":              {event("stranger", "50", "", changed), saved(), marked("300", same), noted(saved(), "300")},
		"same, marker, added with the labels":              {event("stranger", "250", "", same), saved(), marked("300", same), noted(saved(), "300")},
		"a label more, marker":                             {event("stranger", "90", "", changed), saved(), marked("300", set{"rack": "r7", "team": "blue", "x": ""}), replaced("stranger", "300", set{"rack": "r7", "team": "blue", "x": ""})},
		"a label less, marker":                             {event("stranger", "90", "", changed), saved(), marked("300", set{"rack": "r7"}), replaced("stranger", "300", set{"rack": "r7"})},
		"a label has a new key, marker":                    {event("stranger", "90", "", changed), saved(), marked("300", set{"rack": "r7", "x": "blue"}), replaced("stranger", "300", set{"rack": "r7", "x": "blue"})},
		"no labels any more, marker":                       {event("stranger", "90", "", changed), saved(), marked("300", set{}), replaced("stranger", "300", set{})},
		"no labels, as before, marker":                     {event("stranger", "90", "", changed), with(saved(), noLabels), marked("300", set{}), noted(with(saved(), noLabels), "300")},

		// otherwise
		"no marker":                        {event("stranger", "250", "", asItCame), saved(), live("stranger", ""), restored},
		"no marker, never restored":        {event("stranger", "250", "", asItCame), neverRestored(), live("stranger", ""), restored},
		"no marker, but it had it":         {event("stranger", "250", "100", asItCame), saved(), live("stranger", ""), restored},
		"no marker, added before the save": {event("stranger", "50", "", asItCame), saved(), live("stranger", ""), restored},
		"no marker, added with the labels": {event("stranger", "250", "", asItCame), saved(), live("stranger", ""), restored},
		"a marker of another save":         {event("stranger", "250", "", asItCame), saved(), live("stranger", "99"), restored},
		"a marker of the restore":          {event("stranger", "250", "", asItCame), saved(), live("stranger", "200"), restored},
		"no marker, before the restore": {
			event("stranger", "150", "", changed), saved(), &nodeview.Node{UID: "stranger", Revision: revision.MustParse("199"), Labels: changed}, restored,
		},
		"no marker, with the labels": {
			event("stranger", "250", "", changed), saved(), &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: same}, restored,
		},
		"made by hand": {
			event("stranger", "250", "", asItCame), &record.Record{Node: "node-1", Labels: same, Revision: revision.MustParse("100")}, live("stranger", ""), restored,
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
	for name, node := range map[string]*nodeview.Node{
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

// A watcher that starts before a node has a record reports an add, however old the node is. Another
// watcher may have recorded an earlier state in the meantime; the add then counts as an update.
func TestDecideLaterAdded(t *testing.T) {
	for name, tc := range map[string]struct {
		t    txn.Transaction
		r    *record.Record
		want preserve.Decision
	}{
		"source":                              {event("source", "101", "", changed), neverRestored(), replaced("source", "101", changed)},
		"source, before the version":          {event("source", "99", "", changed), neverRestored(), nothing()},
		"source, at the version":              {event("source", "100", "", changed), neverRestored(), nothing()},
		"source, restored since, before that": {event("source", "199", "", changed), saved(), nothing()},
		"source, the same labels":             {event("source", "101", "", same), neverRestored(), seenLater(neverRestored(), "101")},
		"restored":                            {event("restored", "201", "", changed), saved(), replaced("restored", "201", changed)},
		"restored, before the restore":        {event("restored", "199", "", changed), saved(), nothing()},
		"restored, the same labels":           {event("restored", "201", "100", same), saved(), replaced("restored", "201", same)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Type, tc.t.FoundsRecord = txn.Added, true
			for _, n := range []*nodeview.Node{nil, live(tc.t.UID, "100"), live("other", "")} {
				assertDecision(t, tc.want, preserve.Decide(tc.t, tc.r, n, replaceAll))
			}
			tc.t.FoundsRecord = false // updates are not recorded
			assertDecision(t, nothing(), preserve.Decide(tc.t, tc.r, live(tc.t.UID, "100"), replaceAll))
		})
	}
}

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
			tx := event("stranger", "250", "", asItCame)
			tx.Type = txn.Added
			want := preserve.Decision{Action: preserve.Restore, Labels: tc.want, Marker: "100"}
			assertDecision(t, want, preserve.Decide(tx, saved(), liveStranger(), tc.policy))
		})
	}
}
