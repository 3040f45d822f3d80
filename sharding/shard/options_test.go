package shard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

func TestOptionsComeFromThePod(t *testing.T) {
	t.Setenv("POD_NAME", "web-0")
	t.Setenv("POD_NAMESPACE", "web-system")
	o, err := Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}}.completed()
	require.NoError(t, err)
	assert.Equal(t, "web-0", o.Name)
	assert.Equal(t, "web-system", o.Namespace)
	assert.Equal(t, 15*time.Second, o.LeaseDuration)
	assert.Equal(t, 20*time.Second, o.LeaveTimeout)
	assert.Equal(t, v1alpha1.DefaultPrefix, o.LabelPrefix)
}

func TestOptionsReportWhatIsMissing(t *testing.T) {
	t.Parallel()
	good := Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system"}
	for name, tc := range map[string]struct {
		change  func(*Options)
		message string
	}{
		"no ring":                       {func(o *Options) { o.Ring = "" }, "set Ring"},
		"no kinds":                      {func(o *Options) { o.Kinds = nil }, "set Kinds"},
		"a name that no Lease can have": {func(o *Options) { o.Name = "Web_0" }, `"Web_0"`},
		"not a label value":             {func(o *Options) { o.Name = longName }, "is not a valid label value"},
		"fraction of a second":          {func(o *Options) { o.LeaseDuration = 1500 * time.Millisecond }, "whole number of seconds"},
		"negative timeout":              {func(o *Options) { o.LeaveTimeout = -time.Second }, "negative"},
		"name of the sharder":           {func(o *Options) { o.Name = "sharder" }, "is reserved"},
		"nil kind":                      {func(o *Options) { o.Kinds = []client.Object{nil} }, "one of the Kinds is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			tc.change(&o)
			_, err := New(&rest.Config{}, o)
			require.ErrorContains(t, err, tc.message)
		})
	}
	_, err := New(&rest.Config{}, good)
	require.NoError(t, err)
	_, err = New(&rest.Config{}, Options{Standalone: true})
	require.NoError(t, err, "no other option is required")
}

const longName = "a-name-that-is-longer-than-the-sixty-three-characters-of-a-label-value"

// Selectors set by the program are kept, whichever field of the cache options holds them.
func TestCachesHoldOnlyOwnObjects(t *testing.T) {
	t.Parallel()
	const own = "shard.sharding.nodekeeper.dev/website=web-0"
	newShard := func(t *testing.T) *Shard {
		t.Helper()
		s, err := New(&rest.Config{}, Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system"})
		require.NoError(t, err)
		return s
	}
	selector := labels.SelectorFromSet
	for name, tc := range map[string]struct {
		given         cache.Options
		label, inTeam string
	}{
		"nothing else":                   {cache.Options{}, own, ""},
		"the default":                    {cache.Options{DefaultLabelSelector: selector(labels.Set{"a": "b"})}, "a=b," + own, ""},
		"its own before the default":     {cache.Options{DefaultLabelSelector: selector(labels.Set{"a": "b"}), ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: selector(labels.Set{"c": "d"})}}}, "c=d," + own, ""},
		"that of a namespace":            {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{"team": {LabelSelector: selector(labels.Set{"e": "f"})}}}}}, own, "e=f," + own},
		"of a namespace without its own": {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: selector(labels.Set{"c": "d"}), Namespaces: map[string]cache.Config{"team": {}}}}}, "c=d," + own, "c=d," + own},
		"the default of a namespace":     {cache.Options{DefaultNamespaces: map[string]cache.Config{"team": {LabelSelector: selector(labels.Set{"e": "f"})}}, ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{"team": {}}}}}, own, "e=f," + own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filtered, err := newShard(t).filtered(tc.given, scheme.Scheme)
			require.NoError(t, err)
			require.Len(t, filtered, 1)
			for _, by := range filtered {
				assert.Equal(t, tc.label, by.Label.String())
				if tc.inTeam != "" {
					assert.Equal(t, tc.inTeam, by.Namespaces["team"].LabelSelector.String())
				}
			}
		})
	}
	_, err := newShard(t).filtered(cache.Options{DefaultNamespaces: map[string]cache.Config{"team": {LabelSelector: labels.Everything()}}}, scheme.Scheme)
	assert.ErrorContains(t, err, "repeat it")
}

// The shard may not have the right to list more.
func TestShardListsOnlyWhatItCaches(t *testing.T) {
	t.Parallel()
	kind := corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	for name, tc := range map[string]struct {
		given cache.Options
		want  []string
	}{
		"all namespaces":        {cache.Options{}, []string{""}},
		"the default ones":      {cache.Options{DefaultNamespaces: map[string]cache.Config{"b": {}, "a": {}}}, []string{"a", "b"}},
		"its own":               {cache.Options{DefaultNamespaces: map[string]cache.Config{"b": {}}, ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{"c": {}}}}}, []string{"c"}},
		"all, and some of them": {cache.Options{DefaultNamespaces: map[string]cache.Config{"b": {}, cache.AllNamespaces: {}}}, []string{""}},
	} {
		s, err := New(&rest.Config{}, Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system"})
		require.NoError(t, err)
		_, err = s.filtered(tc.given, scheme.Scheme)
		require.NoError(t, err)
		assert.Equal(t, tc.want, s.scopes(kind), name)
	}
}
