package deploy

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/manifests"
)

// story is an installation of the controller and the example, whose programs run as processes.
type story struct {
	client.Client

	t     *testing.T
	queue string // the address of its server
}

// newStory installs everything with kubectl.
func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t}
	s.kubectl("apply", "--server-side", "--force-conflicts", "-k", root) // a test may have scaled the workers
	s.kubectl("wait", "--for=condition=Established", "crd/queues.example.com", "--timeout=3m")
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	s.Client = c
	s.queue = s.serveQueue()
	t.Cleanup(s.clean)
	return s
}

// clean deletes what the programs have made, so that the next test begins as this one.
func (s *story) clean() {
	ctx := context.WithoutCancel(s.t.Context())
	q := queues.New(shop, queue, 0)
	assert.NoError(s.t, client.IgnoreNotFound(s.Delete(ctx, q)))
	for _, namespace := range []string{shop, system} {
		assert.NoError(s.t, s.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(namespace)))
	}
	assert.NoError(s.t, s.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(shop)))
	assert.NoError(s.t, s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(shop), client.GracePeriodSeconds(0)))
}

// kubectl runs kubectl, and returns its output.
func (s *story) kubectl(args ...string) string {
	s.t.Helper()
	return manifests.Kubectl(s.t, plane, args...)
}

// podOfWorkers returns a pod of the StatefulSet that is not created yet.
func (s *story) podOfWorkers(name string) *corev1.Pod {
	s.t.Helper()
	template := workers(s.t).Spec.Template
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: template.Labels}, Spec: template.Spec}
}
