package deploy

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// withLeaseOwner installs the policy, and waits until the API server applies it to the token of a
// pod. It returns a client with that token.
func (s *story) withLeaseOwner(pod *corev1.Pod) client.Client {
	s.t.Helper()
	s.kubectl("apply", "--server-side", "-k", leaseOwner)
	s.t.Cleanup(func() { s.kubectl("delete", "-k", leaseOwner) })
	c := as(s.t, manifests.PodKubeconfig(s.t, s.Client, plane, pod))
	s.eventually(func(t *assert.CollectT) {
		err := c.Create(s.t.Context(), leaseOf("no-such-pod", string(pod.UID)+"/a-15s"), client.DryRunAll)
		assert.True(t, isRefused(err, notItsPod+"no-such-pod"), "%v", err)
	}, "the policy is in force")
	return c
}

// The messages of the validations.
const (
	notItsPod    = "only a token of the pod "
	notItsHolder = "the holder of the Lease must be an incarnation of the pod"
	notItsEnd    = "only the pod's own incarnations"
)

// isRefused reports whether a validation with such a message has refused a request.
func isRefused(err error, message string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), message)
}

// leaseOf returns a Lease of the pool that is not created yet.
func leaseOf(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: map[string]string{contract.PoolLabel: workerName}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// change is a change of a Lease, which the policy refuses with a message.
type change struct {
	of      *coordinationv1.Lease
	apply   func(*coordinationv1.Lease)
	message string
}

// changesOfB returns changes that concern pod B: of the Lease of pod A, of that of pod B, and of
// one without the label of a pool.
func changesOfB(own, others, unlabelled *coordinationv1.Lease) map[string]change {
	a, b := *own.Spec.HolderIdentity, *others.Spec.HolderIdentity
	label := func(l *coordinationv1.Lease) { l.Labels = own.Labels }
	holder := func(value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &value }
	}
	return map[string]change{
		"renews the Lease of B":               {others, func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NowMicro()) }, notItsPod + others.Name},
		"releases the Lease of B":             {others, holder(""), notItsPod + others.Name},
		"takes the Lease of B":                {others, holder(a), notItsPod + others.Name},
		"acknowledges for B":                  {others, annotate(contract.AcknowledgedAnnotation, "{}"), notItsPod + others.Name},
		"takes the Lease of B from the pool":  {others, func(l *coordinationv1.Lease) { l.Labels = nil }, notItsPod + others.Name},
		"brings a Lease into the pool":        {unlabelled, label, notItsPod + unlabelled.Name},
		"names B's incarnation as the holder": {own, holder(b), notItsHolder},
		"names both incarnations as holders":  {own, holder(a + "," + b), notItsHolder},
		"records that B has ended":            {own, annotate(contract.EndedAnnotation, b), notItsEnd},
		"records that both have ended":        {own, annotate(contract.EndedAnnotation, a+","+b), notItsEnd},
		"records that B has ended before":     {own, annotate(contract.EndedBeforeAnnotation, a+","+b), notItsEnd},
	}
}

// annotate returns a change of an annotation.
func annotate(key, value string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, value) }
}

// TestPodsWriteNoLeaseButTheirOwn: with a token of pod A, the policy refuses each write that would
// concern pod B.
func TestPodsWriteNoLeaseButTheirOwn(t *testing.T) {
	s := newStory(t)
	a, b := s.pod("worker-0"), s.pod("worker-1")
	stolen := s.withLeaseOwner(a)
	own, others := leaseOf(a.Name, string(a.UID)+"/a-15s"), leaseOf(b.Name, string(b.UID)+"/b-15s")
	unlabelled := leaseOf("worker-2", *others.Spec.HolderIdentity)
	unlabelled.Labels = nil
	require.NoError(t, stolen.Create(t.Context(), own))
	err := stolen.Create(t.Context(), others.DeepCopy(), client.DryRunAll)
	assert.True(t, isRefused(err, notItsPod+b.Name), "creates the Lease of B: %v", err)
	require.NoError(t, as(t, manifests.PodKubeconfig(t, s.Client, plane, b)).Create(t.Context(), others))
	require.NoError(t, s.Create(t.Context(), unlabelled))
	for what, tc := range changesOfB(own, others, unlabelled) {
		next := tc.of.DeepCopy()
		tc.apply(next)
		err := stolen.Update(t.Context(), next, client.DryRunAll)
		assert.True(t, isRefused(err, tc.message), "%s: %v", what, err)
		require.NoError(t, s.Update(t.Context(), next, client.DryRunAll), "%s: an administrator may", what)
	}
	noPod := as(t, manifests.Kubeconfig(t, s.Client, plane, shop, workerName))
	err = noPod.Update(t.Context(), own.DeepCopy(), client.DryRunAll)
	assert.True(t, isRefused(err, "this one is of no pod"), "a token of no pod: %v", err)
	ended := own.DeepCopy()
	annotate(contract.EndedAnnotation, *own.Spec.HolderIdentity)(ended)
	ended.Spec.HolderIdentity = new("")
	require.NoError(t, stolen.Update(t.Context(), ended), "its own Lease")
}

// TestThePolicyConcernsAccountsOfTheNamespace: a service account of another namespace, with the
// rights of an agent, writes the Lease of a pod.
func TestThePolicyConcernsAccountsOfTheNamespace(t *testing.T) {
	s := newStory(t)
	pod := s.pod("worker-0")
	s.withLeaseOwner(pod)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "operator"}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "placement-agent"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account.Name}},
	}
	for _, obj := range []client.Object{account, binding} {
		require.NoError(t, s.Create(t.Context(), obj))
		t.Cleanup(func() { assert.NoError(t, s.Delete(context.WithoutCancel(t.Context()), obj)) })
	}
	lease := leaseOf(pod.Name, string(pod.UID)+"/a-15s")
	require.NoError(t, s.Create(t.Context(), lease))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, contract.UnschedulableAnnotation, "true")
	operator := as(t, manifests.Kubeconfig(t, s.Client, plane, system, account.Name))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, operator.Update(t.Context(), lease.DeepCopy(), client.DryRunAll))
	}, "the API server knows the rights")
}

// TestAgentsWorkUnderThePolicy: an agent joins, works, releases its Lease, and joins again as
// another pod of that name.
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
