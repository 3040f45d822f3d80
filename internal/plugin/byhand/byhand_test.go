package byhand_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/retention/removal"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// saved is a record of incarnation "source" at 100, last seen on "restored" at 200.
func saved() record.Record {
	return record.Record{
		Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("100"), Source: "source",
		Restored: record.Restoration{UID: "restored", Revision: revision.MustParse("200")},
	}
}

// node returns node-1 with a record, which may be nil, and a Node with this uid, unless it is
// empty.
func node(r *record.Record, uid types.UID, rack string) *inspect.Node {
	n := &inspect.Node{Name: "node-1", Now: revision.MustParse("300")}
	if r != nil {
		n.Saved = inspect.ParseSaved(r.ConfigMap("records"))
	}
	if uid != "" {
		n.Live = &nodeview.Node{Name: "node-1", UID: uid, Revision: revision.MustParse("250"), Labels: set{"rack": rack}}
	}
	return n
}

func TestNamesThatPeopleType(t *testing.T) {
	tx := txn.Transaction{Type: txn.Added, Node: "a.b", UID: "u", Revision: revision.MustParse("7"), ObservedAt: time.Now()}
	cm := tx.ConfigMap("ns")
	assert.Equal(t, "a.b.7", byhand.ShortName(cm))
	for name, full := range map[string]string{"a.b.7": cm.Name, cm.Name: cm.Name, "notes": "notes", "a.b": "a.b", "a.07": "a.07"} {
		assert.Equal(t, full, byhand.FullName(name), name)
	}
	assert.Equal(t, "notes", byhand.ShortName(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "notes"}}))
	assert.Equal(t, "a, b, c and 2 more", byhand.Abbreviate([]string{"a", "b", "c", "d", "e"}))
}

func TestOnlyWhatIsSavedAndSettledIsForgettable(t *testing.T) {
	r, floor := saved(), preserve.Forgotten("node-1", nil, nil, revision.MustParse("9"))
	require.NoError(t, byhand.Forgettable(node(&r, "", ""), "node-1", false))
	for _, nothing := range []*inspect.Node{nil, node(nil, "live", "r1"), node(&floor, "", "")} {
		require.ErrorContains(t, byhand.Forgettable(nothing, "node-1", true), "no labels are saved")
	}
	busy := node(&r, "", "")
	busy.Pending = make([]inspect.Pending, 2)
	require.ErrorContains(t, byhand.Forgettable(busy, "node-1", false), "2 pending transactions")
	require.NoError(t, byhand.Forgettable(busy, "node-1", true))
}

func TestPrunableNodesAreAwayForLongAndHaveNothingPending(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	survey := &inspect.Survey{Nodes: []inspect.Summary{
		{Name: "long", State: inspect.Away, LastHeard: ago(48 * time.Hour)},
		{Name: "just", State: inspect.Away, LastHeard: ago(24 * time.Hour)},
		{Name: "short", State: inspect.Away, LastHeard: ago(24*time.Hour - time.Second)},
		{Name: "busy", State: inspect.Away, LastHeard: ago(48 * time.Hour), Pending: 1},
		{Name: "live", State: inspect.Live},
		{Name: "unknown", State: inspect.Away},
	}}
	var names []string
	for _, s := range byhand.Prunable(survey, 24*time.Hour, now) {
		names = append(names, s.Name)
	}
	assert.Equal(t, []string{"long", "just"}, names)
	assert.Equal(t, "forgotten", byhand.Describe(removal.Removed))
	for _, kept := range []removal.Outcome{removal.Busy, removal.Present, removal.Changed, removal.Returned} {
		assert.True(t, strings.HasPrefix(byhand.Describe(kept), "kept: "), byhand.Describe(kept))
	}
}

func TestEndIsMissingUntilItIsOnRecord(t *testing.T) {
	r, ended, userRecord := saved(), saved(), preserve.UserRecord("node-1", labels.Side{Labels: set{"rack": "r1"}}, revision.MustParse("9"))
	ended.Ended = true
	for name, tc := range map[string]struct {
		n    *inspect.Node
		want bool
	}{
		"away":                  {node(&r, "", ""), true},
		"back":                  {node(&r, "next", "r1"), true},
		"its source is there":   {node(&r, "source", "r1"), false},
		"its restored is there": {node(&r, "restored", "r1"), false},
		"away, ended":           {node(&ended, "", ""), false},
		"back, ended":           {node(&ended, "next", "r1"), false},
		"set by hand":           {node(&userRecord, "", ""), false},
		"never saved":           {node(nil, "live", "r1"), false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, byhand.EndMissing(tc.n)) })
	}
}

func TestImportTakesARecordAsItWasOnlyWhereItMeansTheSame(t *testing.T) {
	const here, elsewhere = "here", "elsewhere"
	changed := saved()
	changed.Labels = set{"rack": "r2"}
	for name, tc := range map[string]struct {
		from       string
		before     *inspect.Node
		now        string
		labelsOnly bool
		owed       bool
	}{
		"nothing there":                         {here, nil, "300", false, false},
		"the cluster is of an earlier time":     {here, nil, "150", true, false},
		"another cluster":                       {elsewhere, nil, "300", true, false},
		"another cluster, and the node is back": {elsewhere, node(nil, "next", "r1"), "300", true, true},
		"the node is back":                      {here, node(nil, "next", "r1"), "300", false, true},
		"the node has these labels":             {here, node(nil, "restored", "r1"), "300", false, false},
		"the node had these labels":             {here, node(&changed, "restored", "r2"), "300", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := saved()
			i := byhand.NewImport(byhand.Exported(r.ConfigMap("records"), "here"), nil, "here", revision.MustParse("300"), labels.MachineBound{}, true)
			require.False(t, i.LabelsOnly())
			exported := byhand.Exported(r.ConfigMap("records"), "here")
			exported.Annotations["nodekeeper.dev/exported-from"] = tc.from
			i = byhand.NewImport(exported, tc.before, "here", revision.MustParse(tc.now), labels.MachineBound{}, true)
			assert.Equal(t, tc.labelsOnly, i.LabelsOnly())
			assert.Equal(t, tc.owed, i.Owed())
			if tc.labelsOnly {
				assert.Equal(t, tc.now, i.Revision(), "no marker agrees with it")
			}
		})
	}
}

func TestExportedRecordsAreReadBack(t *testing.T) {
	r := saved()
	const stream = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-1}\ndata: {labels_restored: \"5\", rack: r1}\n---\n\n"
	all, err := byhand.ReadExported(strings.NewReader(stream))
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, set{labels.Marker: "5", "rack": "r1"}, all[0].Data)

	cm := r.ConfigMap("records")
	cm.Annotations[record.AwaySinceAnnotation] = "2026-11-21T03:14:15Z"
	cm.ResourceVersion = "77"
	exported := byhand.Exported(cm, "cluster")
	assert.NotContains(t, exported.Annotations, record.AwaySinceAnnotation, "absence counts again")
	assert.Empty(t, exported.ResourceVersion)
	assert.Equal(t, "source", exported.Annotations["nodekeeper.dev/source-uid"])

	for says, content := range map[string]string{
		"is not a record":              strings.Replace(stream, "ConfigMap", "Secret", 1),
		"there twice":                  stream + stream,
		"was forgotten":                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-1, annotations: {nodekeeper.dev/forgotten: \"7\"}}\n",
		"not a readable":               strings.Replace(stream, `"5"`, `"x"`, 1),
		"unknown field":                strings.Replace(stream, "data:", "dada:", 1),
		"has no apiVersion or no kind": "foo: bar\n",
		"v1 List is not":               "apiVersion: v1\nkind: List\nitems: []\n",
	} {
		_, err := byhand.ReadExported(strings.NewReader(content))
		require.ErrorContains(t, err, says)
	}
}

// TestExportedRecordsAreNeverLeftOutInSilence: only lines of --- separate documents. Other
// separators of YAML and JSON would hide all records but the first.
func TestExportedRecordsAreNeverLeftOutInSilence(t *testing.T) {
	asYAML := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {labels_restored: \"5\", rack: r1}\n"
	}
	asJSON := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"labels_restored":"5","rack":"r1"}}`
	}
	for name, content := range map[string]string{
		"JSON lines":         asJSON("a") + "\n" + asJSON("b") + "\n",
		"JSON without lines": asJSON("a") + asJSON("b"),
		"end of a document":  asYAML("a") + "...\n" + asYAML("b"),
	} {
		_, err := byhand.ReadExported(strings.NewReader(content))
		require.ErrorContains(t, err, "document 1: it continues after its end", name)
	}
	for name, content := range map[string]string{
		"JSON":          asJSON("a") + "\n---\n" + asJSON("b"),
		"both ends":     asYAML("a") + "...\n---\n" + asYAML("b"),
		"a comment":     asYAML("a") + "--- # the next\n" + asYAML("b"),
		"carriage":      strings.ReplaceAll(asYAML("a")+"---\n"+asYAML("b"), "\n", "\r\n"),
		"a byte order":  "\xef\xbb\xbf" + asYAML("a") + "---\n" + asYAML("b"),
		"empty between": "---\n{}\n---\n" + asYAML("a") + "---\n# nothing\n---\n" + asYAML("b"),
	} {
		all, err := byhand.ReadExported(strings.NewReader(content))
		require.NoError(t, err, name)
		assert.Len(t, all, 2, name)
	}
}

// TestExportedRecordsAreTakenWithoutWhatBindsThem: an immutable record could never be updated, and
// the garbage collector deletes a record whose owner does not exist.
func TestExportedRecordsAreTakenWithoutWhatBindsThem(t *testing.T) {
	const content = `apiVersion: v1
kind: ConfigMap
metadata:
  name: node-1
  namespace: elsewhere
  uid: abc
  resourceVersion: "77"
  labels: {owner: us}
  annotations: {note: mine}
  finalizers: [example.com/hold]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: gone, uid: gone}]
immutable: true
data: {labels_restored: "5", rack: r1}
`
	all, err := byhand.ReadExported(strings.NewReader(content))
	require.NoError(t, err)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: set{"owner": "us"}, Annotations: set{"note": "mine"}},
		Data:       set{labels.Marker: "5", "rack": "r1"},
	}
	assert.Equal(t, []*corev1.ConfigMap{want}, all)
}

// TestExportedRecordsAreCheckedBeforeTheFirstIsStored, by what the API server would refuse later.
func TestExportedRecordsAreCheckedBeforeTheFirstIsStored(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-1, labels: {owner: us}, annotations: {note: mine}}\ndata: {labels_restored: \"5\", rack: r1}\n"
	_, err := byhand.ReadExported(strings.NewReader(good))
	require.NoError(t, err)
	for says, content := range map[string]string{
		"metadata.name":           strings.Replace(good, "node-1", "Node_1", 1),
		"metadata.labels":         strings.Replace(good, "owner: us", "owner: a b", 1),
		"metadata.annotations":    strings.Replace(good, "mine", strings.Repeat("x", 300<<10), 1),
		"a record has room for":   strings.Replace(good, "rack: r1", manyLabels(9000), 1),
		"is not a record: import": strings.Replace(good, "node-1", record.RootCAName, 1),
	} {
		_, err := byhand.ReadExported(strings.NewReader(content))
		require.ErrorContains(t, err, says)
	}
}

// manyLabels are labels that do not fit a ConfigMap, as YAML: each has a key that is kept in its
// value.
func manyLabels(count int) string {
	prefix := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60) + "." + strings.Repeat("d", 60)
	all := set{}
	for i := range count {
		all[fmt.Sprintf("%s/name-%d", prefix, i)] = "value"
	}
	var entries []string
	for key, value := range labels.Encode(all) {
		entries = append(entries, key+": "+value)
	}
	return strings.Join(entries, ", ")
}
