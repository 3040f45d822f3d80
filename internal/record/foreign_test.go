package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// set is a set of data or labels.
type set = map[string]string

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "records", Name: name}, Data: data}
}

func TestOwnerOfAConfigMap(t *testing.T) {
	own := configMap("node-1", set{"labels_restored": "7", "label_version": "1"}) // a label that kube-state-rs had set on the Node
	own.Labels = set{record.ManagedByLabel: record.ManagedBy}
	noted := configMap("node-1", nil)
	noted.Annotations = set{record.ForgottenAnnotation: "7"}
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want record.Owner
	}{
		"nodekeeper's":             {own, record.Nodekeeper},
		"a floor":                  {noted, record.Nodekeeper},
		"created by a user":        {configMap("node-1", set{"labels_restored": "7", "rack": "r1"}), record.Nodekeeper},
		"of another program":       {configMap("node-1", set{"rack": "r1"}), record.Another},
		"empty":                    {configMap("node-1", nil), record.Another},
		"about another node":       {configMap("machines", set{"node_name": "node-1"}), record.Another},
		"of its first releases":    {configMap("node-1", set{"label_version": "1", "resource_version": "7"}), record.KubeStateRS},
		"of its later releases":    {configMap("node-1", set{"node_name": "node-1", "transaction_type": "deleted", "last_store_resource_version": "7"}), record.KubeStateRS},
		"with the name only":       {configMap("node-1", set{"node_name": "node-1", "rack": "r1"}), record.KubeStateRS},
		"with a revision, as ours": {configMap("node-1", set{"node_name": "node-1", "type": "deleted", "labels_restored": "7"}), record.KubeStateRS},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, record.OwnerOf(tc.cm))
			_, err := record.Parse(tc.cm)
			if tc.want == record.Nodekeeper {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, record.ErrForeign)
			require.ErrorIs(t, err, record.ErrUnreadable)
			assert.ErrorContains(t, err, "belongs to "+string(tc.want))
		})
	}
}

func TestLabelsOfKubeStateRS(t *testing.T) {
	for name, tc := range map[string]struct {
		data set
		want record.KubeStateRSLabels
	}{
		"of its later releases": {
			set{"node_name": "node-1", "transaction_type": "deleted", "last_store_resource_version": "190", "label_version": "3", "rack": "r1", "example.com---SLASH---team": "blue", "type": "gpu"},
			record.KubeStateRSLabels{Node: "node-1", Labels: set{"rack": "r1", "example.com/team": "blue", "type": "gpu"}, Revision: revision.MustParse("190"), Version: 3},
		},
		"with a revision, as ours": {
			set{"node_name": "node-1", "type": "deleted", "labels_restored": "190", "rack": "r1"},
			record.KubeStateRSLabels{Node: "node-1", Labels: set{"rack": "r1"}, Revision: revision.MustParse("190")},
		},
		"of its first releases": {
			set{"label_version": "2", "resource_version": "0", "example.com-SLASH-team": "blue"},
			record.KubeStateRSLabels{Node: "node-1", Labels: set{"example.com/team": "blue"}, Version: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := record.ParseKubeStateRS(configMap("node-1", tc.data))
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
	_, err := record.ParseKubeStateRS(configMap("node-1", set{"label_version": "2", "rack": "not a value"}))
	require.Error(t, err)
}

// In kube-state-rs, the end of a node that has not got its labels back does not replace a record.
func TestLaterLabelsOfKubeStateRS(t *testing.T) {
	old := record.KubeStateRSLabels{Revision: revision.MustParse("9"), Version: 2}
	assert.True(t, record.KubeStateRSLabels{Revision: revision.MustParse("5"), Version: 3}.After(old))
	assert.True(t, record.KubeStateRSLabels{Revision: revision.MustParse("10"), Version: 2}.After(old))
	assert.False(t, record.KubeStateRSLabels{Revision: revision.MustParse("10")}.After(old))
	assert.False(t, old.After(old))
}

func TestTransactionsOfKubeStateRS(t *testing.T) {
	own := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u", Revision: revision.MustParse("7"), Labels: set{"node_name": "node-1"}}
	for name, tc := range map[string]struct {
		cm              *corev1.ConfigMap
		isTheirs, isEnd bool
	}{
		"added":        {configMap("x", set{"node_name": "node-1", "transaction_type": "added"}), true, false},
		"deleted":      {configMap("x", set{"node_name": "node-1", "transaction_type": "deleted", "rack": "r1"}), true, true},
		"with a type":  {configMap("x", set{"node_name": "node-1", "type": "deleted"}), true, true},
		"nodekeeper's": {own.ConfigMap("transactions"), false, false},
		"of no node":   {configMap("x", set{"type": "deleted"}), false, false},
		"of no type":   {configMap("x", set{"node_name": "node-1", "type": "gpu"}), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			isTheirs, isEnd := record.IsKubeStateRSTransaction(tc.cm)
			assert.Equal(t, tc.isTheirs, isTheirs)
			assert.Equal(t, tc.isEnd, isEnd)
		})
	}
}
