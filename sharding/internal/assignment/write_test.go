package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPatchesTestWhatTheDecisionRead covers R25.
func TestPatchesTestWhatTheDecisionRead(t *testing.T) {
	t.Parallel()
	to := change{labels: map[string]*string{"p/s": new("b"), "p/d": nil}}
	known := []string{"p/s", "p/d"}
	for name, tc := range map[string]struct {
		meta   metav1.ObjectMeta
		change change
		want   string
	}{
		"both are there": {
			metav1.ObjectMeta{UID: "u", Labels: map[string]string{"p/s": "a", "p/d": "b"}},
			to,
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/labels/p~1s","value":"a"},` +
				`{"op":"test","path":"/metadata/labels/p~1d","value":"b"},{"op":"remove","path":"/metadata/labels/p~1d"},` +
				`{"op":"add","path":"/metadata/labels/p~1s","value":"b"}]`,
		},
		"neither is there": {
			metav1.ObjectMeta{UID: "u", Labels: map[string]string{}},
			to,
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/labels/p~1s","value":null},` +
				`{"op":"test","path":"/metadata/labels/p~1d","value":null},{"op":"add","path":"/metadata/labels/p~1s","value":"b"}]`,
		},
		"there are no labels": {
			metav1.ObjectMeta{UID: "u"},
			to,
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/labels","value":null},` +
				`{"op":"add","path":"/metadata/labels","value":{"p/s":"b"}}]`,
		},
		"of a version": {
			metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Labels: map[string]string{"p/d": "b"}},
			change{labels: to.labels, isOfVersion: true},
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
				`{"op":"test","path":"/metadata/labels/p~1s","value":null},{"op":"test","path":"/metadata/labels/p~1d","value":"b"},` +
				`{"op":"remove","path":"/metadata/labels/p~1d"},{"op":"add","path":"/metadata/labels/p~1s","value":"b"}]`,
		},
		"an empty value": {
			metav1.ObjectMeta{UID: "u", Labels: map[string]string{}},
			change{annotations: map[string]*string{"p/c": new("")}},
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/labels/p~1s","value":null},` +
				`{"op":"test","path":"/metadata/labels/p~1d","value":null},{"op":"test","path":"/metadata/annotations","value":null},` +
				`{"op":"add","path":"/metadata/annotations","value":{"p/c":""}}]`,
		},
	} {
		patch, err := patchOf(&metav1.PartialObjectMetadata{ObjectMeta: tc.meta}, known, tc.change)
		require.NoError(t, err, name)
		assert.JSONEq(t, tc.want, string(patch), name)
	}
}
