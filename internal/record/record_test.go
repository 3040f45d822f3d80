package record_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

var savedAt = time.Date(2026, time.November, 21, 3, 14, 15, 0, time.UTC)

// saved is the record in doc.go.
func saved() record.Record {
	return record.Record{
		Node:     "node-1",
		Labels:   map[string]string{"rack": "r7", "example.com/team": "blue"},
		Revision: revision.MustParse("2571"),
		Source:   "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1",
		Restored: record.Restoration{
			UID: "41f0fb0a-6d24-43f1-9d29-2ed7a4b5b2f4", Revision: revision.MustParse("2650"),
		},
		Machine:   "kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os",
		Overruled: "example.com/pool",
		Ended:     true,
		EndedAt:   time.Date(2026, 11, 21, 3, 14, 0, 0, time.UTC),
		SavedAt:   savedAt,
	}
}

func TestEndWithoutTime(t *testing.T) {
	for text, isEnded := range map[string]bool{"true": true, "false": false, "": false} {
		cm := saved().ConfigMap("records")
		cm.Annotations["nodekeeper.dev/ended"] = text
		read, err := record.Parse(cm)
		require.NoError(t, err)
		assert.Equal(t, isEnded, read.Ended, text)
		assert.True(t, read.EndedAt.IsZero())
		read.Write(cm)
		assert.Equal(t, isEnded, cm.Annotations["nodekeeper.dev/ended"] == "true")
	}
}

func TestConfigMapIsAsTheDocumentationShowsIt(t *testing.T) {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "node-1",
			Namespace: "node-metadata",
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodekeeper"},
			Annotations: map[string]string{
				"nodekeeper.dev/source-uid":   "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1",
				"nodekeeper.dev/restored-uid": "41f0fb0a-6d24-43f1-9d29-2ed7a4b5b2f4",
				"nodekeeper.dev/restored-rv":  "2650",
				"nodekeeper.dev/ended":        "2026-11-21T03:14:00Z",
				"nodekeeper.dev/saved-at":     "2026-11-21T03:14:15Z",

				"nodekeeper.dev/machine-labels":    "kubernetes.io/arch,kubernetes.io/hostname,kubernetes.io/os",
				"nodekeeper.dev/machine-labels-rv": "2650",
				"nodekeeper.dev/overruled-labels":  "example.com/pool",
			},
		},
		Data: map[string]string{"labels_restored": "2571", "rack": "r7", "example.com---SLASH---team": "blue"},
	}
	assert.Equal(t, want, saved().ConfigMap("node-metadata"))
}

func TestParseIsTheInverseOfConfigMap(t *testing.T) {
	longKey := strings.Repeat("p", 253) + "/" + strings.Repeat("N", 63)
	restored := record.Restoration{UID: "r", Revision: revision.MustParse("12")}
	type set = map[string]string
	for name, want := range map[string]record.Record{
		"everything":     saved(),
		"never restored": {Node: "node-1", Labels: set{"a": "b"}, Revision: revision.MustParse("9"), Source: "u", SavedAt: savedAt},
		"made by hand":   {Node: "node-1", Labels: set{"a": "b"}, Revision: revision.MustParse("9")},
		"no source":      {Node: "node-1", Labels: set{"a": "b"}, Revision: revision.MustParse("9"), Restored: restored, SavedAt: savedAt},
		"no labels":      {Node: "node-1", Labels: set{}, Revision: revision.MustParse("9"), Source: "u", Restored: restored, SavedAt: savedAt},
		"long versions":  {Node: "node-1", Labels: set{}, Revision: revision.Of(strings.Repeat("9", 40)), Source: "u", Restored: record.Restoration{UID: "r", Revision: revision.Of(strings.Repeat("8", 41))}},
		"reserved keys":  {Node: "node-1", Labels: set{"type": "gpu", "x/type": "", labels.Marker: "3"}, Revision: revision.MustParse("9"), Source: "u", SavedAt: savedAt},
		"tokens":         {Node: "node-1", Labels: set{"a/b": "1", "a---SLASH---b": "2"}, Revision: revision.MustParse("9"), Source: "u", SavedAt: savedAt},
		"a long key":     {Node: "node-1", Labels: set{longKey: strings.Repeat("v", 63)}, Revision: revision.MustParse("9"), Source: "u", SavedAt: savedAt},
	} {
		t.Run(name, func(t *testing.T) {
			cm := want.ConfigMap("ns")
			for key := range cm.Data {
				assert.Empty(t, validation.IsConfigMapKey(key), "%q", key)
			}
			got, err := record.Parse(cm)
			require.NoError(t, err)
			assert.Equal(t, &want, got)
		})
	}
}

func TestParseDoesNotModifyTheConfigMap(t *testing.T) {
	cm := saved().ConfigMap("ns")
	got, err := record.Parse(cm)
	require.NoError(t, err)
	got.Labels["rack"] = "r8"
	assert.Equal(t, saved().ConfigMap("ns"), cm)
}

func TestParseReadsTimesOfAnyZone(t *testing.T) {
	cm := saved().ConfigMap("ns")
	cm.Annotations["nodekeeper.dev/saved-at"] = "2026-11-21T05:14:15+02:00"
	got, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, savedAt, got.SavedAt)
}

func TestEqualIgnoresSavedAtAndNothingElse(t *testing.T) {
	other := saved()
	other.SavedAt = savedAt.Add(time.Hour)
	assert.True(t, saved().Equal(other))

	for name, change := range map[string]func(r *record.Record){
		"node":                     func(r *record.Record) { r.Node = "node-2" },
		"version":                  func(r *record.Record) { r.Revision = revision.MustParse("2572") },
		"source":                   func(r *record.Record) { r.Source = "other" },
		"restored uid":             func(r *record.Record) { r.Restored.UID = "other" },
		"restored resourceVersion": func(r *record.Record) { r.Restored.Revision = revision.MustParse("2651") },
		"a label's value":          func(r *record.Record) { r.Labels["rack"] = "r8" },
		"a label more":             func(r *record.Record) { r.Labels["more"] = "" },
		"a label less":             func(r *record.Record) { delete(r.Labels, "rack") },
	} {
		t.Run(name, func(t *testing.T) {
			other := saved()
			change(&other)
			assert.False(t, saved().Equal(other))
			assert.False(t, other.Equal(saved()))
		})
	}
}

// Releases without ownership leave the annotations unchanged when they save other labels or note a
// restore.
func TestParseIgnoresOwnershipOfAnotherState(t *testing.T) {
	for name, write := range map[string]func(*record.Record){
		"saved": func(r *record.Record) { r.Revision, r.Restored = revision.MustParse("2700"), record.Restoration{} },
		"noted": func(r *record.Record) {
			r.Restored = record.Restoration{UID: "next", Revision: revision.MustParse("2700")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cm, next := saved().ConfigMap("ns"), saved()
			before := maps.Clone(cm.Annotations)
			write(&next)
			next.Write(cm)
			for key, value := range before {
				if strings.Contains(key, "-labels") {
					cm.Annotations[key] = value
				}
			}
			got, err := record.Parse(cm)
			require.NoError(t, err)
			assert.Empty(t, got.Machine)
			assert.Empty(t, got.Overruled)
			assert.Equal(t, labels.KeysOf(maps.Keys(got.Labels)), got.Unclear)
		})
	}
}

func TestWriteRemovesFormerMachineLabels(t *testing.T) {
	cm := saved().ConfigMap("ns")
	next := saved()
	next.Machine, next.Overruled = "", ""
	next.Write(cm)
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/machine-labels")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/overruled-labels")
	assert.Equal(t, "2650", cm.Annotations["nodekeeper.dev/machine-labels-rv"], "without owner, and not unclear")
}

// The labels of a record created manually belong to the user.
func TestLabelsOfManualRecordAreTheUsers(t *testing.T) {
	cm := saved().ConfigMap("ns")
	for key := range cm.Annotations {
		delete(cm.Annotations, key)
	}
	got, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, saved().Labels, got.Labels)
	assert.Empty(t, got.Machine)
	assert.Empty(t, got.Unclear)
}
