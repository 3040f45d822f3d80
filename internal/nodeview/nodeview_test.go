package nodeview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
)

type set = map[string]string

func node(own set) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: own}}
}

// The selector matches ignored labels, too.
func TestSelected(t *testing.T) {
	for selector, want := range map[string]bool{
		"":                     true,
		"pool=a":               true,
		"pool in (a, b),!skip": true,
		"state=ready":          true,
		"pool!=a":              false,
		"skip":                 false,
	} {
		view, err := nodeview.Parse(agents.Default, "state", selector)
		require.NoError(t, err, selector)
		n := view.OfMetadata(node(set{"pool": "a", "state": "ready"}))
		assert.Equal(t, !want, n.Unselected, selector)
		assert.Equal(t, set{"pool": "a"}, n.Labels)
	}
	assert.False(t, nodeview.View{}.OfMetadata(node(nil)).Unselected, "the zero value selects every node")
}

func TestMarkerIsApartFromTheLabels(t *testing.T) {
	for _, tc := range []struct {
		own    set
		marker string
		value  *string
		gated  bool
	}{
		{nil, "", nil, false},
		{set{labels.Marker: ""}, "", new(""), false},
		{set{labels.Marker: "7"}, "7", new("7"), false},
		{set{labels.Marker: labels.Pending}, labels.Pending, new(labels.Pending), true},
	} {
		n := nodeview.View{}.OfMetadata(node(tc.own))
		assert.Equal(t, set{}, n.Labels)
		assert.Equal(t, tc.marker, n.Marker)
		assert.Equal(t, tc.value, n.MarkerValue())
		assert.Equal(t, tc.gated, n.Gated)
	}
}

func TestBadViews(t *testing.T) {
	for _, tc := range []struct{ managers, ignored, selector, want string }{
		{managers: "*", want: "--machine-managers: "},
		{ignored: "a*b", want: "--ignore-labels: "},
		{ignored: labels.Marker, want: "which nodekeeper uses to mark nodes that have their labels"},
		{selector: "pool=a b", want: `--node-selector "pool=a b": `},
		{selector: "a=b,!" + labels.Marker, want: "nodekeeper itself sets"},
		{selector: "==", want: "write it as for kubectl get -l"},
	} {
		_, err := nodeview.Parse(tc.managers, tc.ignored, tc.selector)
		assert.ErrorContains(t, err, tc.want)
	}
}
