package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/sharding/shardlease"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

const (
	period, patience = 100 * time.Millisecond, 3 * time.Minute

	// controllerName and workerName are service accounts, and names of workloads.
	controllerName, workerName = "placement-controller", "worker"
)

// controller starts a controller like its pod, with a token of its service account, and waits until
// it is ready.
func (s *story) controller(name string, env ...string) *programs.Program {
	s.t.Helper()
	pools := filepath.Join(s.t.TempDir(), "pools.yaml")
	require.NoError(s.t, os.WriteFile(pools, s.pools(), 0o600))
	args := slices.Clone(deployment(s.t).Spec.Template.Spec.Containers[0].Args)
	args = append(args, "--pool-config="+pools, "--kubeconfig="+manifests.Kubeconfig(s.t, s.Client, plane, system, controllerName),
		"--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0")
	p := s.launch(name, append(env, "POD_NAME="+name, "POD_NAMESPACE="+system), args...)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	require.NoError(s.t, p.WaitReady(ctx))
	return p
}

// pools returns the file of the pools.
func (s *story) pools() []byte {
	s.t.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(s.t, s.Get(s.t.Context(), types.NamespacedName{Namespace: system, Name: "placement-pools"}, cm))
	return []byte(cm.Data["pools.yaml"])
}

// launch starts the program. It is killed at the end of the test.
func (s *story) launch(name string, env []string, args ...string) *programs.Program {
	s.t.Helper()
	p, err := programs.Launch(env, "placement", name, args...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, p.Kill())
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, p.Output())
		}
	})
	return p
}

// pod creates a pod of the StatefulSet, which nothing runs.
func (s *story) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod := s.podOfWorkers(name)
	require.NoError(s.t, s.Create(s.t.Context(), pod))
	return pod
}

// agent starts the command of a pod like a kubelet, with a token of the pod. Its flags follow those
// of the manifests.
func (s *story) agent(pod *corev1.Pod, flags ...string) *programs.Program {
	s.t.Helper()
	container := pod.Spec.Containers[0]
	worker, err := programs.Path("queue")
	require.NoError(s.t, err)
	values := strings.NewReplacer("$(POD_NAMESPACE)", pod.Namespace, "$(POD_NAME)", pod.Name, "$(POD_UID)", string(pod.UID), "$(ZONE)", "",
		"http://queue:8080", "http://"+s.queue)
	args := slices.Clone(container.Command[1:])
	for _, arg := range container.Args {
		args = append(args, values.Replace(arg))
	}
	at := slices.Index(args, "--exec")
	require.Positive(s.t, at)
	program := slices.Index(args, "/queue")
	require.Greater(s.t, program, at)
	args[program] = worker
	args = slices.Insert(args, at, append(flags, "--kubeconfig="+manifests.PodKubeconfig(s.t, s.Client, plane, pod))...)
	return s.launch(pod.Name, nil, args...)
}

// serveQueue starts the server of the queue like its pod, and returns its address.
func (s *story) serveQueue() string {
	s.t.Helper()
	address, err := ports.Address()
	require.NoError(s.t, err)
	args := slices.Clone(queueServer(s.t).Spec.Template.Spec.Containers[0].Args)
	p, err := programs.Launch(nil, "queue", "queue", append(args, "--listen="+address, "--dir="+s.t.TempDir())...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, p.Kill()) })
	return address
}

// shows waits until the Queue has what is wanted, ready, and why.
func (s *story) shows(wanted, ready int64, why string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		q := queues.New(shop, queue, 0)
		require.NoError(c, s.Get(s.t.Context(), client.ObjectKeyFromObject(q), q))
		has, _, err := unstructured.NestedInt64(q.Object, "status", "readyVReplicas")
		require.NoError(c, err)
		conditions, _, err := unstructured.NestedSlice(q.Object, "status", "conditions")
		require.NoError(c, err)
		at := slices.IndexFunc(conditions, func(o any) bool { return o.(map[string]any)["type"] == "Ready" })
		require.GreaterOrEqual(c, at, 0)
		condition := conditions[at].(map[string]any)
		assert.Equal(c, why, condition["reason"])
		assert.Equal(c, q.GetGeneration(), condition["observedGeneration"])
		assert.Equal(c, ready, has)
	}, fmt.Sprintf("%d wanted, %d ready, %s", wanted, ready, why))
	line := strings.Fields(s.kubectl("get", "queues", "--namespace="+shop, "--no-headers"))
	require.GreaterOrEqual(s.t, len(line), 4)
	assert.Equal(s.t, []string{queue, strconv.FormatInt(wanted, 10), strconv.FormatInt(ready, 10), why}, line[:4])
}

// holder returns the holder of the Lease of a pod, or nothing.
func (s *story) holder(t require.TestingT, pod string) string {
	lease := &coordinationv1.Lease{}
	require.NoError(t, s.Get(s.t.Context(), types.NamespacedName{Namespace: shop, Name: pod}, lease))
	return shardlease.Holder(lease)
}

func (s *story) eventually(condition func(c *assert.CollectT), message string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, condition, patience, period, message)
}
