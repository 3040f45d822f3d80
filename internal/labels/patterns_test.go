package labels_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
)

func TestPatternsMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		list       string
		match, not []string
	}{
		"empty":            {"", nil, []string{"", "rack", "a/b"}},
		"empty items":      {" , ,", nil, []string{"", "rack", "a/b"}},
		"exact":            {"a.io/b", []string{"a.io/b"}, []string{"a.io/bc", "a.io/", "xa.io/b", "A.io/b", "x.a.io/b", ""}},
		"exact, no prefix": {"rack", []string{"rack"}, []string{"rack2", "ra", "a.io/rack", "rack/a"}},
		"prefix":           {"a.io/*", []string{"a.io/b", "a.io/c"}, []string{"a.io", "x.a.io/b", "xa.io/b", "a.iox/b"}},
		"prefix of a name": {"gpu-*", []string{"gpu-", "gpu-count"}, []string{"gpu", "x/gpu-count", "my-gpu-count"}},
		"everything":       {"*", []string{"rack", "a/b", ""}, nil},
		"sub-domains":      {"*.a.io/*", []string{"x.a.io/b", "y.x.a.io/b"}, []string{"a.io/b", "xa.io/b", "x.a.io", "x.a.iox/b", "a.io.x/b", "x/y.a.io", ""}},
		"inside a name":    {"a.io/b*c", []string{"a.io/bc", "a.io/bxc"}, []string{"a.io/b", "a.io/bcd", "x.a.io/bc", "bc"}},
		"end of a name":    {"a.io/*-state", []string{"a.io/x-state", "a.io/-state"}, []string{"a.io/state", "a.io/x-states", "b.io/x-state"}},
		"no overlap":       {"a.io/aba*ba", []string{"a.io/ababa"}, []string{"a.io/aba"}},
		"every namespace":  {"*/rack", []string{"a.io/rack", "x.a.io/rack"}, []string{"rack", "a.io/my-rack", "a.io/rack2"}},
		"several":          {"rack, a.io/* ,\t*.b.io/*\n,", []string{"rack", "a.io/x", "c.b.io/x"}, []string{"b.io/x", "rack2"}},
		"repeated":         {"rack,rack", []string{"rack"}, []string{"r"}},
	} {
		t.Run(name, func(t *testing.T) {
			patterns := parse(t, tc.list)
			for _, key := range tc.match {
				assert.True(t, patterns.Match(key), "%q", key)
			}
			for _, key := range tc.not {
				assert.False(t, patterns.Match(key), "%q", key)
			}
		})
	}
}

func TestZeroPatternsMatchNothing(t *testing.T) {
	assert.False(t, labels.Patterns{}.Match("rack"))
	assert.False(t, labels.Patterns{}.Match(""))
}

func TestParsePatternsRejectsInvalidPatterns(t *testing.T) {
	for name, list := range map[string]string{
		"a star in the middle":                 "a*b",
		"a star at the front":                  "*b",
		"two stars":                            "a**",
		"two stars in a name":                  "a.io/*b*c",
		"a star before a name":                 "a*/b",
		"a star in a namespace":                "a.*.io/b",
		"every namespace and a prefix":         "*/a*",
		"a space after a star":                 "a.io/*b c",
		"a sub-domain and an exact name":       "*.a.io/b",
		"a sub-domain and a prefix of a name":  "*.a.io/b*",
		"a sub-domain without a slash":         "*.a.io*",
		"a sub-domain and nothing more":        "*.a.io",
		"a star in the domain of a sub-domain": "*.a*.io/*",
		"sub-domains of sub-domains":           "*.*.io/*",
		"a space":                              "a b",
		"a space in a prefix":                  "a b*",
		"a tab":                                "a\tb",
		"a label with its value":               "a=b",
		"a bad one after good ones":            "rack,a.io/*,a*b",
	} {
		t.Run(name, func(t *testing.T) {
			patterns, err := labels.ParsePatterns(list)
			require.ErrorContains(t, err, "unreadable pattern")
			assert.Equal(t, labels.Patterns{}, patterns)
		})
	}
}

func TestDefaultLiveMatchesKubeletLabels(t *testing.T) {
	patterns := parse(t, labels.DefaultLive)
	for _, key := range []string{
		// kubeletLabels in k8s.io/kubelet/pkg/apis/well_known_labels.go:
		corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		// kubeletLabelNamespaces, with their sub-domains:
		"kubelet.kubernetes.io/x", "foo.kubelet.kubernetes.io/x", "a.b.kubelet.kubernetes.io/x",
		"node.kubernetes.io/x", "foo.node.kubernetes.io/x", "a.b.node.kubernetes.io/x",
	} {
		assert.True(t, patterns.Match(key), "%q", key)
	}
	for _, key := range []string{
		"node-role.kubernetes.io/worker", "node-role.kubernetes.io/control-plane",
		"x.node.kubernetes.io", "node.kubernetes.io", "kubelet.kubernetes.io",
		"evilnode.kubernetes.io/x", "evilkubelet.kubernetes.io/x", "node.kubernetes.io.example.com/x",
		"kubernetes.io/hostname2", "kubernetes.io/role", "x.kubernetes.io/hostname", "hostname",
		"topology.kubernetes.io/rack", "beta.kubernetes.io/x", "k8s.io/x", "rack", "example.com/team",
		labels.Marker,
	} {
		assert.False(t, patterns.Match(key), "%q", key)
	}
}
