package byhand_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/byhand"
	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// TestImportSeesANodeThatComesBackMeanwhile: after the Nodes were listed, and before the records
// are. The labels of another cluster are owed to it then.
func TestImportSeesANodeThatComesBackMeanwhile(t *testing.T) {
	const records = "records"
	own := saved()
	own.Restored = record.Restoration{}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: own.Node, UID: "next", Labels: own.Labels}}
	comeBack := func(ctx context.Context, c client.Client) {
		require.NoError(t, c.Create(ctx, n))
		noted := own
		noted.Restored = record.Restoration{UID: n.UID, Revision: revision.MustParse("1000000")}
		require.NoError(t, c.Create(ctx, noted.ConfigMap(records)))
	}
	isBack := false
	c := fake.NewClientBuilder().
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "here"}}).
		WithIndex(&corev1.Node{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions
			options.ApplyOptions(opts)
			if options.Namespace == records && !isBack {
				isBack = true
				comeBack(ctx, c)
			}
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("300") // the fake has none
			return err
		}}).Build()
	given := saved()
	given.Labels = set{"rack": "r9"}
	exported := byhand.Exported(given.ConfigMap(records), "elsewhere")

	cluster := &inspect.Cluster{Client: c, TransactionNamespace: "transactions", MetadataNamespace: records}
	all, err := byhand.PrepareImports(t.Context(), cluster, []*corev1.ConfigMap{exported}, true)
	require.NoError(t, err)
	require.True(t, isBack)
	require.Len(t, all, 1)
	assert.True(t, all[0].Owed(), "the node is there, and has other labels")
}
