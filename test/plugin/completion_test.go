package plugin_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

// TestCompletion requests completions of kubectl nodekeeper as a shell does.
func TestCompletion(t *testing.T) {
	t.Parallel()
	e := newEnvIn(t, ownPlane(t), "node-metadata-transactions", "node-metadata", ring.DefaultNamespace)
	script, err := filepath.Abs(filepath.Join("..", "..", "cmd", "kubectl-nodekeeper"))
	require.NoError(t, err)
	e.create("node-there", nil)
	require.NoError(t, e.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: "node-away", Labels: set{record.ManagedByLabel: record.ManagedBy}}, Data: set{"labels_restored": "1"},
	}))
	require.NoError(t, e.client.Create(t.Context(), preserve.Forgotten("forgotten", nil, nil, revision.MustParse("1")).ConfigMap(e.metadata)))
	require.NoError(t, e.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.transactions, Name: "notes", Labels: set{txn.MalformedLabel: "true"},
	}}))
	for line, want := range map[string][]string{
		"show ":                   {"node-there", "node-away"},
		"show node-t":             {"node-there"},
		"show node-there ":        nil,
		"forget ":                 {"node-away"},
		"forget node-away ":       nil,
		"save ":                   {"node-there"},
		"set ":                    {"node-away"},
		"discard ":                {"notes"},
		"list --state=":           {"unreadable", "restoring", "never-seen", "away", "live"},
		"pending --restore-mode=": {"replace", "merge"},
		"save --dry-run=":         {"none", "client", "server"},
		"restore --restore-mode=": {"replace", "merge"},
		"disc":                    {"discard"},
	} {
		assert.ElementsMatch(t, want, e.Completions(script, line), "%q", line)
	}
}
