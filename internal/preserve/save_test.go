package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// The record that most rows start from: labels saved from incarnation "source" at 100, and last put onto incarnation
// "restored" at 200. "stranger" is any other incarnation.
func saved() *record.Record {
	return &record.Record{
		Node: "node-1", Labels: set{"rack": "r7", "team": "blue"}, Version: "100", Source: "source",
		Restored: record.Restoration{UID: "restored", ResourceVersion: "200"},
		SavedAt:  time.Date(2026, time.November, 21, 3, 14, 15, 0, time.UTC),
	}
}

func neverRestored() *record.Record {
	r := saved()
	r.Restored = record.Restoration{}
	return r
}

// with returns the record after one change.
func with(r *record.Record, change func(r *record.Record)) *record.Record {
	change(r)
	return r
}

// event is a transaction of node-1, of a type that is set later.
func event(uid types.UID, rv, marker string, nodeLabels set) txn.Transaction {
	return txn.Transaction{Node: "node-1", UID: uid, ResourceVersion: rv, Marker: marker, Labels: nodeLabels}
}

var (
	same    = set{"rack": "r7", "team": "blue"}
	changed = set{"rack": "r8", "team": "blue"}
)

func nothing() preserve.Decision { return preserve.Decision{Action: preserve.Nothing} }

// replaced is a Save of the transaction's labels, with no restore noted.
func replaced(uid types.UID, rv string, nodeLabels set) preserve.Decision {
	return preserve.Decision{Action: preserve.Save, Record: record.Record{
		Node: "node-1", Labels: nodeLabels, Version: rv, Source: uid,
	}}
}

// noted is a Save of the record with nothing changed but the restore, which is the stranger's now.
func noted(r *record.Record, rv string) preserve.Decision {
	r.Restored = record.Restoration{UID: "stranger", ResourceVersion: rv}
	return preserve.Decision{Action: preserve.Save, Record: *r}
}

func TestDecideSave(t *testing.T) {
	longRV := func(r *record.Record) { r.Version, r.Restored.ResourceVersion = "9", "9" }
	both := func(r *record.Record) { r.Restored.UID = r.Source }
	unknownSource := func(r *record.Record) { r.Source = "" }
	for name, tc := range map[string]struct {
		t    txn.Transaction
		r    *record.Record
		want preserve.Decision
	}{
		// no record: create it
		"no record":              {event("stranger", "50", "", changed), nil, replaced("stranger", "50", changed)},
		"no record, no labels":   {event("stranger", "50", "", set{}), nil, replaced("stranger", "50", set{})},
		"no record but a marker": {event("stranger", "50", "40", changed), nil, replaced("stranger", "50", changed)},

		// labels differ: t.uid = R.source and t.rv > R.version
		"changed, source, before the version":                  {event("source", "99", "", changed), saved(), nothing()},
		"changed, source, at the version":                      {event("source", "100", "", changed), saved(), nothing()},
		"changed, source, after the version":                   {event("source", "101", "", changed), saved(), replaced("source", "101", changed)},
		"changed, source, after the version, any restore":      {event("source", "201", "", changed), saved(), replaced("source", "201", changed)},
		"changed, source, after the version, never restored":   {event("source", "101", "", changed), neverRestored(), replaced("source", "101", changed)},
		"changed, source, before the version, never restored":  {event("source", "99", "", changed), neverRestored(), nothing()},
		"changed, source, after the version, another marker":   {event("source", "101", "50", changed), saved(), replaced("source", "101", changed)},
		"changed, source, at the version, another marker":      {event("source", "100", "50", changed), saved(), nothing()},
		"changed, source, longer than the version":             {event("source", "10", "", changed), with(saved(), longRV), replaced("source", "10", changed)},
		"changed, source, shorter than the version":            {event("source", "11", "", changed), saved(), nothing()},
		"changed, source unknown, a stranger after everything": {event("stranger", "300", "", changed), with(saved(), unknownSource), nothing()},
		"changed, source, a resourceVersion that is no number": {event("source", "x", "", changed), saved(), nothing()},

		// labels differ: t.uid = R.restored.uid and t.rv > R.restored.rv
		"changed, restored, before the version":                {event("restored", "99", "", changed), saved(), nothing()},
		"changed, restored, between version and restore":       {event("restored", "199", "", changed), saved(), nothing()},
		"changed, restored, at the restore":                    {event("restored", "200", "", changed), saved(), nothing()},
		"changed, restored, after the restore":                 {event("restored", "201", "", changed), saved(), replaced("restored", "201", changed)},
		"changed, restored, after the restore, marker removed": {event("restored", "201", "", changed), with(saved(), unknownSource), replaced("restored", "201", changed)},
		"changed, restored, longer than the restore":           {event("restored", "10", "", changed), with(saved(), longRV), replaced("restored", "10", changed)},
		"changed, restored, shorter than the restore":          {event("restored", "21", "", changed), saved(), nothing()},
		"changed, restored onto its source, before it":         {event("source", "150", "", changed), with(saved(), both), replaced("source", "150", changed)},
		"changed, restored onto its source, before the save":   {event("source", "99", "", changed), with(saved(), both), nothing()},

		// labels differ: t.marker = R.version
		"changed, marker, after the restore":           {event("stranger", "201", "100", changed), saved(), replaced("stranger", "201", changed)},
		"changed, marker, before the restore":          {event("stranger", "150", "100", changed), saved(), replaced("stranger", "150", changed)},
		"changed, marker, before the version":          {event("stranger", "50", "100", changed), saved(), replaced("stranger", "50", changed)},
		"changed, marker, never restored":              {event("stranger", "150", "100", changed), neverRestored(), replaced("stranger", "150", changed)},
		"changed, marker, source at the version":       {event("source", "100", "100", changed), saved(), replaced("source", "100", changed)},
		"changed, marker, restored before the restore": {event("restored", "199", "100", changed), saved(), replaced("restored", "199", changed)},

		// labels differ: anything else
		"changed, stranger":                         {event("stranger", "201", "", changed), saved(), nothing()},
		"changed, stranger, never restored":         {event("stranger", "201", "", changed), neverRestored(), nothing()},
		"changed, stranger, marker of another save": {event("stranger", "201", "99", changed), saved(), nothing()},
		"changed, stranger, marker of the restore":  {event("stranger", "201", "200", changed), saved(), nothing()},
		"changed, stranger, marker as text":         {event("stranger", "201", "0100", changed), saved(), nothing()},

		// every way in which labels differ
		"a label more":          {event("source", "101", "", set{"rack": "r7", "team": "blue", "x": ""}), saved(), replaced("source", "101", set{"rack": "r7", "team": "blue", "x": ""})},
		"a label less":          {event("source", "101", "", set{"rack": "r7"}), saved(), replaced("source", "101", set{"rack": "r7"})},
		"a label has a new key": {event("source", "101", "", set{"rack": "r7", "x": "blue"}), saved(), replaced("source", "101", set{"rack": "r7", "x": "blue"})},
		"no labels any more":    {event("source", "101", "", set{}), saved(), replaced("source", "101", set{})},
		"no labels, as before":  {event("source", "101", "", set{}), with(saved(), func(r *record.Record) { r.Labels = nil }), nothing()},

		// labels are equal: noted if neither source nor restored, and t.rv > R.restored.rv
		"same, source, after the version":                {event("source", "101", "", same), saved(), nothing()},
		"same, source, after the restore":                {event("source", "201", "", same), saved(), nothing()},
		"same, source, after the restore, marker":        {event("source", "201", "100", same), saved(), nothing()},
		"same, source, at the version":                   {event("source", "100", "", same), saved(), nothing()},
		"same, source, never restored":                   {event("source", "101", "", same), neverRestored(), nothing()},
		"same, source, never restored, marker":           {event("source", "101", "100", same), neverRestored(), nothing()},
		"same, restored, after the restore":              {event("restored", "201", "", same), saved(), nothing()},
		"same, restored, after the restore, marker":      {event("restored", "201", "100", same), saved(), nothing()},
		"same, restored, before the restore, marker":     {event("restored", "199", "100", same), saved(), nothing()},
		"same, restored, before the restore":             {event("restored", "199", "", same), saved(), nothing()},
		"same, marker, before the restore":               {event("stranger", "199", "100", same), saved(), nothing()},
		"same, marker, at the restore":                   {event("stranger", "200", "100", same), saved(), nothing()},
		"same, marker, after the restore":                {event("stranger", "201", "100", same), saved(), noted(saved(), "201")},
		"same, marker, never restored":                   {event("stranger", "101", "100", same), neverRestored(), noted(saved(), "101")},
		"same, marker, never restored, before the save":  {event("stranger", "50", "100", same), neverRestored(), noted(saved(), "50")},
		"same, marker, longer than the restore":          {event("stranger", "10", "9", same), with(saved(), longRV), noted(with(saved(), longRV), "10")},
		"same, marker, shorter than the restore":         {event("stranger", "99", "100", same), saved(), nothing()},
		"same, stranger":                                 {event("stranger", "201", "", same), saved(), nothing()},
		"same, stranger, marker of another save":         {event("stranger", "201", "99", same), saved(), nothing()},
		"same, stranger, never restored":                 {event("stranger", "201", "", same), neverRestored(), nothing()},
		"same, stranger, never restored, another marker": {event("stranger", "201", "99", same), neverRestored(), nothing()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tc.t.Type = range []txn.Type{txn.Updated, txn.Deleted} {
				tc.t.FoundsRecord = !tc.t.FoundsRecord // says nothing here
				got := preserve.Decide(tc.t, tc.r, liveStranger(), replaceAll)
				assertDecision(t, tc.want, got)
			}
		})
	}
}

func TestDecideSaveDoesNotLookAtTheNode(t *testing.T) {
	for name, node := range map[string]*preserve.Node{
		"gone": nil, "itself": {UID: "stranger", Marker: "100"}, "the source": {UID: "source"}, "the restored": {UID: "restored"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := event("stranger", "201", "100", changed)
			tx.Type = txn.Deleted
			assertDecision(t, replaced("stranger", "201", changed), preserve.Decide(tx, saved(), node, replaceAll))
		})
	}
}

var replaceAll = labels.Policy{Mode: labels.Replace}

// liveStranger is a Node whose labels a restore would replace.
func liveStranger() *preserve.Node {
	return &preserve.Node{UID: "stranger", ResourceVersion: "300", Labels: set{"rack": "r1", "zone": "b"}}
}

// assertDecision compares decisions but for their reason, which is for people.
func assertDecision(t *testing.T, want, got preserve.Decision) {
	t.Helper()
	assert.NotEmpty(t, got.Reason)
	got.Reason = ""
	assert.Equal(t, want, got)
}
