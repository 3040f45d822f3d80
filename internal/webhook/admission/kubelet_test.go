package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

type set = map[string]string

// kubelet returns a client with the identity of a node's kubelet.
func kubelet(t *testing.T, node string) client.Client {
	t.Helper()
	path, err := api.KubeconfigFor("system:node:"+node, "system:nodes")
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	cfg.UserAgent = "kubelet/v1.36.3"
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return c
}

// TestKubeletMaySetMatchesTheAPIServer sends a request for each class of keys.
func TestKubeletMaySetMatchesTheAPIServer(t *testing.T) {
	t.Parallel()
	name := "node-" + rand.String(8)
	c := kubelet(t, name)
	for key, want := range map[string]bool{
		"rack":                                          true,
		labels.Marker:                                   true,
		"example.com/team":                              true,
		"xkubernetes.io/team":                           true,
		"kubernetes.io.example.com/team":                true,
		"feature.node.kubernetes.io/cpu":                true,
		"node.kubernetes.io/anything":                   true,
		"kubelet.kubernetes.io/anything":                true,
		"example.kubelet.kubernetes.io/any":             true,
		"node.kubernetes.io/instance-type":              true,
		"kubernetes.io/hostname":                        true,
		"kubernetes.io/os":                              true,
		"kubernetes.io/arch":                            true,
		"beta.kubernetes.io/os":                         true,
		"beta.kubernetes.io/instance-type":              true,
		"failure-domain.beta.kubernetes.io/zone":        true,
		"topology.kubernetes.io/zone":                   true,
		"topology.kubernetes.io/region":                 true,
		"topology.kubernetes.io/rack":                   false,
		"topology.k8s.aws/zone-id":                      true,
		"kubernetes.io/other":                           false,
		"example.kubernetes.io/other":                   false,
		"k8s.io/other":                                  false,
		"example.k8s.io/other":                          false,
		"beta.kubernetes.io/other":                      false,
		"xnode.kubernetes.io/other":                     false,
		"kubernetes.azure.com/agentpool":                true,
		"node-role.kubernetes.io/worker":                false,
		"node-restriction.kubernetes.io/tenant":         false,
		"example.node-restriction.kubernetes.io/tenant": false,
	} {
		assert.Equal(t, want, labels.KubeletMaySet(key), key)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set{key: "x"}}}
		err := c.Create(t.Context(), node, client.DryRunAll)
		assert.Equal(t, want, err == nil, "%s: %v", key, err)
		assert.Equal(t, !want, apierrors.IsForbidden(err), "%s: %v", key, err)
	}
	assert.True(t, labels.KubeletMaySet(labels.TaintKey("example.k8s.io/other", "NoSchedule")))
	assert.True(t, labels.KubeletMaySet(labels.AnnotationKey("example.k8s.io/other")))
}
