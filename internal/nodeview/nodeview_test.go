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
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: own, Annotations: set{"nodekeeper.dev/not-selected": "forged"},
	}}
}

// The selector matches ignored labels, too, and ignores a Node's annotations.
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
		n := node(set{"pool": "a", "state": "ready"})
		view.Apply(n)
		assert.Equal(t, want, nodeview.Selected(n), selector)
		assert.Equal(t, set{"pool": "a"}, n.Labels)
		view.Apply(n)
	}
	n := node(nil)
	nodeview.View{}.Apply(n)
	assert.True(t, nodeview.Selected(n), "the zero value selects every node")
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
