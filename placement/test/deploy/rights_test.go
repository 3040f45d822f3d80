package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	"nodekeeper.dev/placement/controller"
	"nodekeeper.dev/placement/internal/poolconfig"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// TestRightsAreExactlyEnough runs the controller and the agents with tokens of their service
// accounts, and triggers every action that needs a right.
func TestRightsAreExactlyEnough(t *testing.T) {
	s := newStory(t)
	given := manifests.Granted(t, manifests.Render(t, root), system, shop)
	audit := manifests.NewAudit(t, plane, system, shop)
	all := s.play()

	s.eventually(func(c *assert.CollectT) {
		audit.Update(c)
		assert.Empty(c, given.Minus(audit.Done.By(given)), "rights that are given and not used")
	}, "every right is used")
	assert.Empty(t, audit.Done.By(given).Minus(given), "rights that are used, and not by these manifests given")
	assert.Empty(t, audit.Forbidden, "requests of the controller and the agents")
	for _, p := range all {
		assert.NotContains(t, p.Output(), "forbidden")
	}
}

// room is the capacity of a pod.
const room = "--capacity=4"

// play has a Queue worked on by pods that join, die, return and leave, and replaces the leader.
func (s *story) play() []*programs.Program {
	s.t.Helper()
	leader := s.controller("controller-0")
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "worker-1"}}
	require.NoError(s.t, s.Create(s.t.Context(), foreign))
	pods := []*corev1.Pod{s.pod("worker-0"), s.pod("worker-1"), s.pod("worker-2")}
	stays, dies, leaves := s.agent(pods[0], room), s.agent(pods[1], room), s.agent(pods[2], room)
	s.kubectl("apply", "-f", example+"/queue.yaml")
	s.shows(6, 6, "Ready")
	require.NoError(s.t, s.Delete(s.t.Context(), foreign))
	for range 2 { // the second event of the same text is a patch of the first
		s.scale(13)
		s.shows(13, 12, "NotEnoughCapacity")
		s.scale(6)
		s.shows(6, 6, "Ready")
	}
	// As with an API server that does not stream lists, it lists first and then watches.
	standby := s.controller("controller-1", "KUBE_FEATURE_WatchListClient=false")
	require.NoError(s.t, leader.Stop(patience))
	s.leads("controller-1")

	require.NoError(s.t, dies.Kill())
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.holder(c, "worker-1")) }, "the Lease of the dead pod is taken over")
	s.shows(6, 6, "Ready")
	require.NoError(s.t, s.Delete(s.t.Context(), pods[1], client.GracePeriodSeconds(0)))
	returned := s.agent(s.pod("worker-1"), room)
	s.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, s.holder(c, "worker-1")) }, "the pod has joined again")
	s.garble("worker-0")
	s.shows(6, 6, "Ready")

	require.NoError(s.t, standby.Stop(patience))
	s.kubectl("scale", "statefulset", workerName, "--namespace="+shop, "--replicas=2")
	require.NoError(s.t, leaves.Stop(patience))
	// The next controller finds entries of a Queue that it has never seen, and reads it live.
	s.kubectl("delete", "queue", queue, "--namespace="+shop)
	s.kubectl("apply", "-f", example+"/queue.yaml")
	s.cleaner()
	s.eventually(func(c *assert.CollectT) {
		for _, o := range []client.Object{&coordinationv1.Lease{}, &corev1.ConfigMap{}} {
			err := s.Get(s.t.Context(), types.NamespacedName{Namespace: shop, Name: "worker-2"}, o)
			assert.True(c, apierrors.IsNotFound(err), "%v", err)
		}
	}, "the Lease and the contract of the former pod are removed")
	s.shows(6, 6, "Ready")
	return []*programs.Program{leader, standby, stays, dies, leaves, returned}
}

// scale changes the number of partitions of the Queue.
func (s *story) scale(partitions int) {
	s.t.Helper()
	s.kubectl("patch", "queue", queue, "--namespace="+shop, "--type=merge", fmt.Sprintf(`--patch={"spec":{"partitions":%d}}`, partitions))
}

// leads waits until a controller leads.
func (s *story) leads(name string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		lease := &coordinationv1.Lease{}
		require.NoError(c, s.Get(s.t.Context(), types.NamespacedName{Namespace: system, Name: controllerName}, lease))
		require.NotNil(c, lease.Spec.HolderIdentity)
		assert.True(c, strings.HasPrefix(*lease.Spec.HolderIdentity, name), *lease.Spec.HolderIdentity)
	}, name+" leads")
}

// garble makes a contract malformed, and waits until there is another one.
func (s *story) garble(pod string) {
	s.t.Helper()
	key := types.NamespacedName{Namespace: shop, Name: pod}
	before := &corev1.ConfigMap{}
	require.NoError(s.t, s.Get(s.t.Context(), key, before))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"`+contract.DataKey+`":"garbled"}}`))
	require.NoError(s.t, s.Patch(s.t.Context(), before.DeepCopy(), patch))
	s.eventually(func(c *assert.CollectT) {
		now := &corev1.ConfigMap{}
		require.NoError(c, s.Get(s.t.Context(), key, now))
		assert.NotEqual(c, before.UID, now.UID)
		assert.Contains(c, now.Data, contract.DataKey)
	}, "the malformed contract is replaced")
}

// cleaner runs a controller that does not keep the Leases of ended pods for ten minutes, with a
// token of the controller's service account.
func (s *story) cleaner() {
	s.t.Helper()
	pools, err := poolconfig.Parse(s.pools())
	require.NoError(s.t, err)
	pools[0].KeepEnded = time.Second
	cfg, err := clientcmd.BuildConfigFromFlags("", manifests.Kubeconfig(s.t, s.Client, plane, system, controllerName))
	require.NoError(s.t, err)
	c, err := controller.New(cfg, pools)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			assert.NoError(s.t, err)
		}
	})
}
