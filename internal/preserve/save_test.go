package preserve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// saved is the record that most rows start from: labels saved from incarnation "source" at 100, and
// last restored onto incarnation "restored" at 200. "stranger" is any other incarnation.
func saved() *record.Record {
	return &record.Record{
		Node: "node-1", Labels: set{"rack": "r7", "team": "blue"}, Revision: revision.MustParse("100"), Source: "source",
		Restored: record.Restoration{UID: "restored", Revision: revision.MustParse("200")},
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

// event is a transaction of node-1 without a type.
func event(uid types.UID, rv, marker string, nodeLabels set) txn.Transaction {
	return txn.Transaction{Node: "node-1", UID: uid, Revision: revision.Of(rv), Marker: marker, Labels: nodeLabels}
}

var (
	same    = set{"rack": "r7", "team": "blue"}
	changed = set{"rack": "r8", "team": "blue"}
)

func nothing() preserve.Decision { return preserve.Decision{Action: preserve.Nothing} }

// replaced is a Save of the transaction's labels, with no restore noted.
func replaced(uid types.UID, rv string, nodeLabels set) preserve.Decision {
	return preserve.Decision{Action: preserve.Save, Record: record.Record{
		Node: "node-1", Labels: nodeLabels, Revision: revision.Of(rv), Source: uid,
	}}
}

// seenLater is a Save of the record with a note that its source still had its labels.
func seenLater(r *record.Record, rv string) preserve.Decision {
	r.Restored = record.Restoration{UID: r.Source, Revision: revision.Of(rv)}
	return preserve.Decision{Action: preserve.Save, Record: *r}
}

func TestDecideSave(t *testing.T) {
	longRV := func(r *record.Record) {
		r.Revision, r.Restored.Revision = revision.MustParse("9"), revision.MustParse("9")
	}
	both := func(r *record.Record) { r.Restored.UID = r.Source }
	bothEarly := func(r *record.Record) {
		r.Restored = record.Restoration{UID: r.Source, Revision: revision.MustParse("50")}
	}
	unknownSource := func(r *record.Record) { r.Source = "" }
	noLabels := func(r *record.Record) { r.Labels = nil }
	for name, tc := range map[string]struct {
		t    txn.Transaction
		r    *record.Record
		want preserve.Decision
	}{
		// no record: create it
		"no record":              {event("stranger", "50", "", changed), nil, replaced("stranger", "50", changed)},
		"no record, no labels":   {event("stranger", "50", "", set{}), nil, replaced("stranger", "50", set{})},
		"no record but a marker": {event("stranger", "50", "40", changed), nil, replaced("stranger", "50", changed)},

		// t.uid = R.source: t.rv > R.version and t.rv > R.restored.rv, whatever the marker
		"changed, source, before the version":                         {event("source", "99", "", changed), saved(), nothing()},
		"changed, source, before the version, never restored":         {event("source", "99", "", changed), neverRestored(), nothing()},
		"changed, source, at the version":                             {event("source", "100", "", changed), saved(), nothing()},
		"changed, source, at the version, never restored":             {event("source", "100", "", changed), neverRestored(), nothing()},
		"changed, source, after the version":                          {event("source", "101", "", changed), saved(), nothing()},
		"changed, source, after the version, never restored":          {event("source", "101", "", changed), neverRestored(), replaced("source", "101", changed)},
		"changed, source, before the version, marker":                 {event("source", "99", "100", changed), saved(), nothing()},
		"changed, source, before the version, never restored, marker": {event("source", "99", "100", changed), neverRestored(), nothing()},
		"changed, source, at the version, marker":                     {event("source", "100", "100", changed), saved(), nothing()},
		"changed, source, at the version, never restored, marker":     {event("source", "100", "100", changed), neverRestored(), nothing()},
		"changed, source, after the version, marker":                  {event("source", "101", "100", changed), saved(), nothing()},
		"changed, source, after the version, never restored, marker":  {event("source", "101", "100", changed), neverRestored(), replaced("source", "101", changed)},
		"changed, source, before the version, another marker":         {event("source", "99", "99", changed), saved(), nothing()},
		"changed, source, at the version, another marker":             {event("source", "100", "99", changed), saved(), nothing()},
		"changed, source, after the version, another marker":          {event("source", "101", "99", changed), saved(), nothing()},
		"changed, source, at the restore":                             {event("source", "200", "", changed), saved(), nothing()},
		"changed, source, before the restore":                         {event("source", "199", "", changed), saved(), nothing()},
		"same, source, before the restore":                            {event("source", "199", "", same), saved(), nothing()},
		"changed, source, after the restore":                          {event("source", "201", "", changed), saved(), replaced("source", "201", changed)},
		"changed, source, longer than the version":                    {event("source", "10", "", changed), with(saved(), longRV), replaced("source", "10", changed)},
		"changed, source, shorter than the version":                   {event("source", "11", "", changed), saved(), nothing()},
		"changed, source, a resourceVersion that is no number":        {event("source", "x", "", changed), saved(), nothing()},
		"same, source, before the version":                            {event("source", "99", "", same), saved(), nothing()},
		"same, source, before the version, never restored":            {event("source", "99", "", same), neverRestored(), nothing()},
		"same, source, at the version":                                {event("source", "100", "", same), saved(), nothing()},
		"same, source, at the version, never restored":                {event("source", "100", "", same), neverRestored(), nothing()},
		"same, source, after the version":                             {event("source", "101", "", same), saved(), nothing()},
		"same, source, after the version, never restored":             {event("source", "101", "", same), neverRestored(), seenLater(neverRestored(), "101")},
		"same, source, before the version, marker":                    {event("source", "99", "100", same), saved(), nothing()},
		"same, source, before the version, never restored, marker":    {event("source", "99", "100", same), neverRestored(), nothing()},
		"same, source, at the version, marker":                        {event("source", "100", "100", same), saved(), nothing()},
		"same, source, at the version, never restored, marker":        {event("source", "100", "100", same), neverRestored(), nothing()},
		"same, source, after the version, marker":                     {event("source", "101", "100", same), saved(), nothing()},
		"same, source, after the version, never restored, marker":     {event("source", "101", "100", same), neverRestored(), seenLater(neverRestored(), "101")},
		"same, source, before the version, another marker":            {event("source", "99", "99", same), saved(), nothing()},
		"same, source, at the version, another marker":                {event("source", "100", "99", same), saved(), nothing()},
		"same, source, after the version, another marker":             {event("source", "101", "99", same), saved(), nothing()},
		"same, source, at the restore":                                {event("source", "200", "", same), saved(), nothing()},
		"same, source, after the restore":                             {event("source", "201", "", same), saved(), seenLater(saved(), "201")},
		"same, source, longer than the version":                       {event("source", "10", "", same), with(saved(), longRV), seenLater(with(saved(), longRV), "10")},
		"same, source, shorter than the version":                      {event("source", "11", "", same), saved(), nothing()},
		"same, source, a resourceVersion that is no number":           {event("source", "x", "", same), saved(), nothing()},

		// t.uid = R.restored.uid: t.rv > R.restored.rv, whatever the labels and the marker
		"changed, restored, before the version":                 {event("restored", "99", "", changed), saved(), nothing()},
		"changed, restored, after the version":                  {event("restored", "101", "", changed), saved(), nothing()},
		"changed, restored, before the restore":                 {event("restored", "199", "", changed), saved(), nothing()},
		"changed, restored, at the restore":                     {event("restored", "200", "", changed), saved(), nothing()},
		"changed, restored, after the restore":                  {event("restored", "201", "", changed), saved(), replaced("restored", "201", changed)},
		"changed, restored, before the version, marker":         {event("restored", "99", "100", changed), saved(), nothing()},
		"changed, restored, after the version, marker":          {event("restored", "101", "100", changed), saved(), nothing()},
		"changed, restored, before the restore, marker":         {event("restored", "199", "100", changed), saved(), nothing()},
		"changed, restored, at the restore, marker":             {event("restored", "200", "100", changed), saved(), nothing()},
		"changed, restored, after the restore, marker":          {event("restored", "201", "100", changed), saved(), replaced("restored", "201", changed)},
		"changed, restored, before the version, another marker": {event("restored", "99", "99", changed), saved(), nothing()},
		"changed, restored, after the version, another marker":  {event("restored", "101", "99", changed), saved(), nothing()},
		"changed, restored, before the restore, another marker": {event("restored", "199", "99", changed), saved(), nothing()},
		"changed, restored, at the restore, another marker":     {event("restored", "200", "99", changed), saved(), nothing()},
		"changed, restored, after the restore, another marker":  {event("restored", "201", "99", changed), saved(), replaced("restored", "201", changed)},
		"changed, restored, at the restore, source unknown":     {event("restored", "200", "", changed), with(saved(), unknownSource), nothing()},
		"changed, restored, after the restore, source unknown":  {event("restored", "201", "", changed), with(saved(), unknownSource), replaced("restored", "201", changed)},
		"changed, restored, longer than the restore":            {event("restored", "10", "", changed), with(saved(), longRV), replaced("restored", "10", changed)},
		"changed, restored, shorter than the restore":           {event("restored", "21", "", changed), saved(), nothing()},
		"same, restored, before the version":                    {event("restored", "99", "", same), saved(), nothing()},
		"same, restored, after the version":                     {event("restored", "101", "", same), saved(), nothing()},
		"same, restored, before the restore":                    {event("restored", "199", "", same), saved(), nothing()},
		"same, restored, at the restore":                        {event("restored", "200", "", same), saved(), nothing()},
		"same, restored, after the restore":                     {event("restored", "201", "", same), saved(), replaced("restored", "201", same)},
		"same, restored, before the version, marker":            {event("restored", "99", "100", same), saved(), nothing()},
		"same, restored, after the version, marker":             {event("restored", "101", "100", same), saved(), nothing()},
		"same, restored, before the restore, marker":            {event("restored", "199", "100", same), saved(), nothing()},
		"same, restored, at the restore, marker":                {event("restored", "200", "100", same), saved(), nothing()},
		"same, restored, after the restore, marker":             {event("restored", "201", "100", same), saved(), replaced("restored", "201", same)},
		"same, restored, before the version, another marker":    {event("restored", "99", "99", same), saved(), nothing()},
		"same, restored, after the version, another marker":     {event("restored", "101", "99", same), saved(), nothing()},
		"same, restored, before the restore, another marker":    {event("restored", "199", "99", same), saved(), nothing()},
		"same, restored, at the restore, another marker":        {event("restored", "200", "99", same), saved(), nothing()},
		"same, restored, after the restore, another marker":     {event("restored", "201", "99", same), saved(), replaced("restored", "201", same)},
		"same, restored, at the restore, source unknown":        {event("restored", "200", "", same), with(saved(), unknownSource), nothing()},
		"same, restored, after the restore, source unknown":     {event("restored", "201", "", same), with(saved(), unknownSource), replaced("restored", "201", same)},
		"same, restored, longer than the restore":               {event("restored", "10", "", same), with(saved(), longRV), replaced("restored", "10", same)},
		"same, restored, shorter than the restore":              {event("restored", "21", "", same), saved(), nothing()},

		// t.uid is both: as the source
		"changed, restored onto its source, before the version":                {event("source", "99", "", changed), with(saved(), both), nothing()},
		"changed, restored onto its source, at the version":                    {event("source", "100", "", changed), with(saved(), both), nothing()},
		"changed, restored onto its source, after the version":                 {event("source", "101", "", changed), with(saved(), both), nothing()},
		"changed, restored onto its source, before the restore":                {event("source", "199", "", changed), with(saved(), both), nothing()},
		"changed, restored onto its source, at the restore":                    {event("source", "200", "", changed), with(saved(), both), nothing()},
		"changed, restored onto its source, after it":                          {event("source", "201", "", changed), with(saved(), both), replaced("source", "201", changed)},
		"changed, restored onto its source before the version, at the restore": {event("source", "50", "", changed), with(saved(), bothEarly), nothing()},
		"changed, restored onto its source before the version, after it":       {event("source", "51", "", changed), with(saved(), bothEarly), nothing()},
		"same, restored onto its source, before the version":                   {event("source", "99", "", same), with(saved(), both), nothing()},
		"same, restored onto its source, at the version":                       {event("source", "100", "", same), with(saved(), both), nothing()},
		"same, restored onto its source, after the version":                    {event("source", "101", "", same), with(saved(), both), nothing()},
		"same, restored onto its source, before the restore":                   {event("source", "199", "", same), with(saved(), both), nothing()},
		"same, restored onto its source, at the restore":                       {event("source", "200", "", same), with(saved(), both), nothing()},
		"same, restored onto its source, after it":                             {event("source", "201", "", same), with(saved(), both), seenLater(with(saved(), both), "201")},
		"same, restored onto its source before the version, at the restore":    {event("source", "50", "", same), with(saved(), bothEarly), nothing()},
		"same, restored onto its source before the version, after it":          {event("source", "51", "", same), with(saved(), bothEarly), nothing()},

		// t.uid is neither: t.marker = R.version and t.rv > R.restored.rv
		"changed, stranger, before the version, marker":                 {event("stranger", "50", "100", changed), saved(), nothing()},
		"changed, stranger, after the version, marker":                  {event("stranger", "150", "100", changed), saved(), nothing()},
		"changed, stranger, before the restore, marker":                 {event("stranger", "199", "100", changed), saved(), nothing()},
		"changed, stranger, at the restore, marker":                     {event("stranger", "200", "100", changed), saved(), nothing()},
		"changed, stranger, after the restore, marker":                  {event("stranger", "201", "100", changed), saved(), replaced("stranger", "201", changed)},
		"changed, stranger, before the version, never restored, marker": {event("stranger", "50", "100", changed), neverRestored(), replaced("stranger", "50", changed)},
		"changed, stranger, at the version, never restored, marker":     {event("stranger", "100", "100", changed), neverRestored(), replaced("stranger", "100", changed)},
		"changed, stranger, after the version, never restored, marker":  {event("stranger", "101", "100", changed), neverRestored(), replaced("stranger", "101", changed)},
		"changed, stranger, marker, longer than the restore":            {event("stranger", "10", "9", changed), with(saved(), longRV), replaced("stranger", "10", changed)},
		"changed, stranger, marker, shorter than the restore":           {event("stranger", "99", "100", changed), saved(), nothing()},
		"changed, stranger, marker, source unknown":                     {event("stranger", "201", "100", changed), with(saved(), unknownSource), replaced("stranger", "201", changed)},
		"same, stranger, before the version, marker":                    {event("stranger", "50", "100", same), saved(), nothing()},
		"same, stranger, after the version, marker":                     {event("stranger", "150", "100", same), saved(), nothing()},
		"same, stranger, before the restore, marker":                    {event("stranger", "199", "100", same), saved(), nothing()},
		"same, stranger, at the restore, marker":                        {event("stranger", "200", "100", same), saved(), nothing()},
		"same, stranger, after the restore, marker":                     {event("stranger", "201", "100", same), saved(), replaced("stranger", "201", same)},
		"same, stranger, before the version, never restored, marker":    {event("stranger", "50", "100", same), neverRestored(), replaced("stranger", "50", same)},
		"same, stranger, at the version, never restored, marker":        {event("stranger", "100", "100", same), neverRestored(), replaced("stranger", "100", same)},
		"same, stranger, after the version, never restored, marker":     {event("stranger", "101", "100", same), neverRestored(), replaced("stranger", "101", same)},
		"same, stranger, marker, longer than the restore":               {event("stranger", "10", "9", same), with(saved(), longRV), replaced("stranger", "10", same)},
		"same, stranger, marker, shorter than the restore":              {event("stranger", "99", "100", same), saved(), nothing()},
		"same, stranger, marker, source unknown":                        {event("stranger", "201", "100", same), with(saved(), unknownSource), replaced("stranger", "201", same)},

		// anything else
		"changed, stranger, before the restore":             {event("stranger", "199", "", changed), saved(), nothing()},
		"changed, stranger, at the restore":                 {event("stranger", "200", "", changed), saved(), nothing()},
		"changed, stranger, after the restore":              {event("stranger", "201", "", changed), saved(), nothing()},
		"changed, stranger, never restored":                 {event("stranger", "201", "", changed), neverRestored(), nothing()},
		"changed, stranger, never restored, another marker": {event("stranger", "201", "99", changed), neverRestored(), nothing()},
		"changed, stranger, marker of another save":         {event("stranger", "201", "99", changed), saved(), nothing()},
		"changed, stranger, marker of the restore":          {event("stranger", "201", "200", changed), saved(), nothing()},
		"changed, stranger, marker as text":                 {event("stranger", "201", "0100", changed), saved(), nothing()},
		"changed, stranger, source unknown":                 {event("stranger", "300", "", changed), with(saved(), unknownSource), nothing()},
		"same, stranger, before the restore":                {event("stranger", "199", "", same), saved(), nothing()},
		"same, stranger, at the restore":                    {event("stranger", "200", "", same), saved(), nothing()},
		"same, stranger, after the restore":                 {event("stranger", "201", "", same), saved(), nothing()},
		"same, stranger, never restored":                    {event("stranger", "201", "", same), neverRestored(), nothing()},
		"same, stranger, never restored, another marker":    {event("stranger", "201", "99", same), neverRestored(), nothing()},
		"same, stranger, marker of another save":            {event("stranger", "201", "99", same), saved(), nothing()},
		"same, stranger, marker of the restore":             {event("stranger", "201", "200", same), saved(), nothing()},
		"same, stranger, marker as text":                    {event("stranger", "201", "0100", same), saved(), nothing()},
		"same, stranger, source unknown":                    {event("stranger", "300", "", same), with(saved(), unknownSource), nothing()},

		// every way in which labels differ
		"a label more, source":                               {event("source", "101", "", set{"rack": "r7", "team": "blue", "x": ""}), neverRestored(), replaced("source", "101", set{"rack": "r7", "team": "blue", "x": ""})},
		"a label more, restored, after the restore":          {event("restored", "201", "", set{"rack": "r7", "team": "blue", "x": ""}), saved(), replaced("restored", "201", set{"rack": "r7", "team": "blue", "x": ""})},
		"a label less, source":                               {event("source", "101", "", set{"rack": "r7"}), neverRestored(), replaced("source", "101", set{"rack": "r7"})},
		"a label less, restored, after the restore":          {event("restored", "201", "", set{"rack": "r7"}), saved(), replaced("restored", "201", set{"rack": "r7"})},
		"a label has a new key, source":                      {event("source", "101", "", set{"rack": "r7", "x": "blue"}), neverRestored(), replaced("source", "101", set{"rack": "r7", "x": "blue"})},
		"a label has a new key, restored, after the restore": {event("restored", "201", "", set{"rack": "r7", "x": "blue"}), saved(), replaced("restored", "201", set{"rack": "r7", "x": "blue"})},
		"no labels any more, source":                         {event("source", "101", "", set{}), neverRestored(), replaced("source", "101", set{})},
		"no labels any more, restored, after the restore":    {event("restored", "201", "", set{}), saved(), replaced("restored", "201", set{})},
		"no labels, as before, source":                       {event("source", "101", "", set{}), with(neverRestored(), noLabels), seenLater(with(neverRestored(), noLabels), "101")},
		"no labels, as before, restored, after the restore":  {event("restored", "201", "", set{}), with(saved(), noLabels), replaced("restored", "201", set{})},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tc.t.Type = range []txn.Type{txn.Updated, txn.Deleted} {
				tc.t.FoundsRecord = !tc.t.FoundsRecord // has no effect here
				tc.want.Record.Ended = tc.want.Action == preserve.Save && tc.t.Type == txn.Deleted
				got := preserve.Decide(tc.t, tc.r, live("other", ""), replaceAll)
				assertDecision(t, tc.want, got)
			}
		})
	}
}

func TestDecideSaveReportsWhetherLabelsChanged(t *testing.T) {
	for want, nodeLabels := range map[string]set{"the same labels, seen later": same, "the labels changed": changed} {
		tx := event("source", "101", "", nodeLabels)
		tx.Type = txn.Updated
		assert.Equal(t, want, preserve.Decide(tx, neverRestored(), nil, replaceAll).Reason)
	}
}

func TestDecideSaveIgnoresTheNode(t *testing.T) {
	for name, node := range map[string]*nodeview.Node{
		"gone": nil, "itself": {UID: "stranger", Marker: "100"}, "the source": {UID: "source"}, "the restored": {UID: "restored"},
	} {
		t.Run(name, func(t *testing.T) {
			tx := event("stranger", "201", "100", changed)
			tx.Type = txn.Deleted
			want := replaced("stranger", "201", changed)
			want.Record.Ended = true
			assertDecision(t, want, preserve.Decide(tx, saved(), node, replaceAll))
		})
	}
}

var replaceAll = labels.Policy{Mode: labels.Replace}

// liveStranger is a Node whose labels a restore would replace.
func liveStranger() *nodeview.Node {
	return &nodeview.Node{UID: "stranger", Revision: revision.MustParse("300"), Labels: set{"rack": "r1", "zone": "b"}}
}

// assertDecision compares decisions except for the reason, which is for users.
func assertDecision(t *testing.T, want, got preserve.Decision) {
	t.Helper()
	assert.NotEmpty(t, got.Reason)
	got.Reason = ""
	assert.Equal(t, want, got)
}
