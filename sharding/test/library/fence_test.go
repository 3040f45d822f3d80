package library

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestAuditLogNamesTheFence covers Audit of R34: a request of a shard for an object of another one
// succeeds, and its event in the audit log names the fence and both shards.
func TestAuditLogNamesTheFence(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(r *v1alpha1.ClusterRing) { r.Spec.Shards.ServiceAccounts = []string{"operator"} })
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + c.namespace + ":operator", Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"web-0"}},
	}
	other, err := client.New(config, client.Options{})
	require.NoError(t, err)
	c.eventually(func(t *assert.CollectT) { // until the API server applies the policy
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "s-"}}
		require.NoError(t, c.Create(c.t.Context(), object))
		object.Labels = map[string]string{prefix.ShardLabel(c.ring.Name): "web-1"}
		require.NoError(t, c.Update(c.t.Context(), object))
		object.StringData = map[string]string{"by": "web-0"}
		require.NoError(t, other.Update(c.t.Context(), object))
		text, err := os.ReadFile(auditLog)
		require.NoError(t, err)
		found := false
		for event := range strings.Lines(string(text)) {
			found = found || strings.Contains(event, object.Name) && strings.Contains(event, "validation.policy.admission.k8s.io/validation_failure") &&
				strings.Contains(event, "sharding-fence-"+c.ring.Name) && strings.Contains(event, "assigned to shard web-1, and this request comes from web-0")
		}
		assert.True(t, found)
	}, "the audit log has it")
}
