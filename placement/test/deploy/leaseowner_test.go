package deploy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/test/manifests"
)

// leaseOwner is the directory of the policy.
var leaseOwner = filepath.Join(root, "components", "lease-owner")

// as returns a client with the rights of a kubeconfig.
func as(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return c
}

// withLeaseOwner installs the policy, and waits until the API server applies it to the token of a pod.
// It returns a client with that token.
func (s *story) withLeaseOwner(pod *corev1.Pod) client.Client {
	s.t.Helper()
	s.kubectl("apply", "--server-side", "-k", leaseOwner)
	s.t.Cleanup(func() { s.kubectl("delete", "-k", leaseOwner) })
	c := as(s.t, manifests.PodKubeconfig(s.t, s.Client, plane, pod))
	s.eventually(func(t *assert.CollectT) {
		err := c.Create(s.t.Context(), leaseOf("no-such-pod", string(pod.UID)+"/a-15s"), client.DryRunAll)
		assert.True(t, isRefused(err), "%v", err)
	}, "the policy is in force")
	return c
}

// isRefused reports whether the policy has refused a request, which the rights would allow.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "placement-lease-owner") || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// leaseOf returns a Lease of the pool that is not created yet.
func leaseOf(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: map[string]string{contract.PoolLabel: workerName}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// TestPodsWriteNoLeaseButTheirOwn: with a token of pod A, the policy refuses each write that would
// concern pod B.
func TestPodsWriteNoLeaseButTheirOwn(t *testing.T) {
	s := newStory(t)
	a, b := s.pod("worker-0"), s.pod("worker-1")
	stolen := s.withLeaseOwner(a)
	own, others := leaseOf(a.Name, string(a.UID)+"/a-15s"), leaseOf(b.Name, string(b.UID)+"/b-15s")
	require.NoError(t, stolen.Create(t.Context(), own))
	require.NoError(t, as(t, manifests.PodKubeconfig(t, s.Client, plane, b)).Create(t.Context(), others))
	annotate := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, value) }
	}
	for what, tc := range map[string]struct {
		of     *coordinationv1.Lease
		change func(*coordinationv1.Lease)
	}{
		"renews the Lease of B":               {others, func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) }},
		"releases the Lease of B":             {others, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") }},
		"takes the Lease of B":                {others, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = own.Spec.HolderIdentity }},
		"acknowledges for B":                  {others, annotate(contract.AcknowledgedAnnotation, "{}")},
		"takes the Lease of B from the pool":  {others, func(l *coordinationv1.Lease) { l.Labels = nil }},
		"names B's incarnation as the holder": {own, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = others.Spec.HolderIdentity }},
		"records that B has ended":            {own, annotate(contract.EndedAnnotation, *others.Spec.HolderIdentity)},
		"records that B has ended before":     {own, annotate(contract.EndedBeforeAnnotation, *own.Spec.HolderIdentity+","+*others.Spec.HolderIdentity)},
	} {
		next := tc.of.DeepCopy()
		tc.change(next)
		err := stolen.Update(t.Context(), next, client.DryRunAll)
		assert.True(t, isRefused(err), "%s: %v", what, err)
		require.NoError(t, s.Update(t.Context(), next, client.DryRunAll), "%s: an administrator may", what)
	}
	noPod := as(t, manifests.Kubeconfig(t, s.Client, plane, shop, workerName))
	assert.True(t, isRefused(noPod.Update(t.Context(), own, client.DryRunAll)), "a token of no pod")
	ended := own.DeepCopy()
	annotate(contract.EndedAnnotation, *own.Spec.HolderIdentity)(ended)
	ended.Spec.HolderIdentity = new("")
	require.NoError(t, stolen.Update(t.Context(), ended), "its own Lease")
}

// TestAgentsWorkUnderThePolicy: an agent joins, works, releases its Lease, and joins again as another
// pod of that name.
func TestAgentsWorkUnderThePolicy(t *testing.T) {
	s := newStory(t)
	first := s.pod("worker-0")
	s.withLeaseOwner(first)
	s.controller("controller-0")
	s.kubectl("apply", "-f", example+"/queue.yaml")
	p := s.agent(first)
	s.shows(6, 6, "Ready")
	require.NoError(t, p.Stop(patience))
	require.NoError(t, s.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	second := s.pod("worker-0")
	s.agent(second)
	s.eventually(func(c *assert.CollectT) { assert.Contains(c, s.holder(c, "worker-0"), string(second.UID)) }, "the new pod has joined")
	s.shows(6, 6, "Ready")
	lease := &coordinationv1.Lease{}
	require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: shop, Name: "worker-0"}, lease))
	assert.Contains(t, lease.Annotations[contract.EndedAnnotation], string(first.UID), "the record of the former pod stays")
}
