package byhand_test

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// between returns a cluster in which something happens after the Nodes and before the records are
// listed.
func between(t *testing.T, happens func(ctx context.Context, c client.Client), objects ...client.Object) *inspect.Cluster {
	t.Helper()
	const records = "records"
	happened := false
	c := faults.Fake().
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "here"}}).
		WithObjects(objects...).
		WithIndex(&corev1.Node{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions
			options.ApplyOptions(opts)
			if options.Namespace == records && !happened {
				happened = true
				happens(ctx, c)
			}
			err := c.List(ctx, list, opts...)
			version := "300" // the fake client has none
			if happened {
				version = "400"
			}
			list.SetResourceVersion(version)
			return err
		}}).Build()
	t.Cleanup(func() { assert.True(t, happened) })
	return &inspect.Cluster{Client: c, TransactionNamespace: "transactions", MetadataNamespace: records}
}

// elsewhere returns other labels of the same node, exported from another cluster.
func elsewhere() []*corev1.ConfigMap {
	other := saved()
	other.Labels = set{"rack": "r9"}
	return []*corev1.ConfigMap{byhand.Exported(other.ConfigMap("records"), "elsewhere")}
}

// TestImportSeesANodeThatComesBackMeanwhile: the labels of another cluster are owed to it then, whether it has just the labels of its
// record, or others, as when a live label has another value.
func TestImportSeesANodeThatComesBackMeanwhile(t *testing.T) {
	for name, more := range map[string]set{"with its labels": {}, "with another zone": {"topology.kubernetes.io/zone": "z2"}} {
		t.Run(name, func(t *testing.T) {
			own := preserve.UserRecord("node-1", labels.Side{Labels: set{"rack": "r1"}}, revision.MustParse("100"))
			own.Source, own.Ended = "source", true
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: own.Node, UID: "next", Labels: set{"rack": "r1", labels.Marker: "100"}}}
			maps.Copy(n.Labels, more)
			cluster := between(t, func(ctx context.Context, c client.Client) {
				require.NoError(t, c.Create(ctx, n))
				live := nodeview.Node{Name: own.Node, UID: n.UID, Revision: revision.MustParse("350"), Labels: n.Labels}
				noted := preserve.Noted(own, nodeview.Node{}, live, labels.MachineBound{})
				var cm corev1.ConfigMap
				require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "records", Name: own.Node}, &cm))
				noted.Write(&cm)
				require.NoError(t, c.Update(ctx, &cm))
			}, own.ConfigMap("records"))
			all, err := byhand.PrepareImports(t.Context(), cluster, elsewhere(), true)
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.True(t, all[0].Owed(), "the node is there, and has other labels")
		})
	}
}

// TestImportSeesANodeThatComesBeforeItIsStored: with --record-updates=false, no transaction creates
// its record.
func TestImportSeesANodeThatComesBeforeItIsStored(t *testing.T) {
	cluster := between(t, func(context.Context, client.Client) {})
	all, err := byhand.PrepareImports(t.Context(), cluster, elsewhere(), true)
	require.NoError(t, err)
	require.NoError(t, cluster.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "new"}}))
	done, err := all[0].Store(t.Context(), cluster, byhand.DryRunNone)
	require.NoError(t, err)
	assert.Equal(t, "imported", done)
	appeared, err := byhand.Appeared(t.Context(), cluster, all)
	require.NoError(t, err)
	assert.Equal(t, []string{"node-1"}, appeared)
}

// TestImportKeepsTheNoteOfALaterRestore: without it, an event of the previous incarnation would
// take effect again.
func TestImportKeepsTheNoteOfALaterRestore(t *testing.T) {
	exported, there := saved(), saved()
	there.Restored = record.Restoration{UID: "next", Revision: revision.MustParse("280")}
	live := node(&there, "next", "r1")
	live.Live.Revision, live.Live.Marker = revision.MustParse("280"), "100"
	i := byhand.NewImport(byhand.Exported(exported.ConfigMap("records"), "here"), live, "here", revision.MustParse("300"), labels.MachineBound{}, true)
	assert.True(t, i.Stored() || i.LabelsOnly(), "it is not stored as it was")
}
