package cluster_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// roundsEnv is how often a node returns while two pods wait for it. Without it there is no such test: it takes five seconds a round.
const roundsEnv = "CLUSTER_ROUNDS"

const gateLabel = "example.com/gate"

// TestPodsAreScheduledByTheLabelsOnly counts how often a pod lands on a node that its labels exclude, because the scheduler saw the node
// without them. It tests any deployment of nodekeeper.
func TestPodsAreScheduledByTheLabelsOnly(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(roundsEnv))
	if err != nil {
		t.Skip("this takes minutes: set " + roundsEnv + " to the number of rounds")
	}
	r := connect(t)
	name := r.nodes[len(r.nodes)-1]
	r.kubectl(t, "label", "node", name, gateLabel+"=yes", "--overwrite")
	r.eventually(t, func(c *assert.CollectT) {
		assert.Equal(c, "yes", r.recordOf(c, name).Data["example.com---SLASH---gate"])
	}, "it is saved")
	wrong := 0
	for range rounds {
		if r.round(t, name) {
			wrong++
		}
	}
	t.Logf("of %d rounds, in %d a pod landed on the node before its labels were back", rounds, wrong)
}

// round lets a node return while a pod that wants its label and one that must keep away from it are pending. It reports whether the second
// one landed there.
func (r *realCluster) round(t *testing.T, name string) (wrong bool) {
	t.Helper()
	old := r.uidOf(t, name)
	r.kubectl(t, "delete", "node", name)
	wants, avoids := r.pending(t, name, corev1.NodeSelectorOpIn), r.pending(t, name, corev1.NodeSelectorOpNotIn)
	r.kubelet(t, "restart", name)
	r.eventually(t, func(c *assert.CollectT) {
		assert.NotEqual(c, old, r.uidOf(c, name))
		assert.Equal(c, name, r.podNamed(c, wants).Spec.NodeName)
	}, "the pod that wants the label is scheduled")
	require.Equal(t, "yes", r.nodeOf(t, name).Labels[gateLabel])
	time.Sleep(time.Second) // the scheduler may still be about to bind the other one
	wrong = r.podNamed(t, avoids).Spec.NodeName == name
	for _, pod := range []string{wants, avoids} {
		err := r.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: pod}}, client.GracePeriodSeconds(0))
		require.NoError(t, client.IgnoreNotFound(err))
	}
	r.settled(t)
	return wrong
}

// pending makes a pod that may run on one node only, by its name and label. It tolerates that the node is not ready, as pods of the
// system do, so nothing but labels and the startup taint keeps it away.
func (r *realCluster) pending(t *testing.T, node string, op corev1.NodeSelectorOperator) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "gate-"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "pause", Image: "nodekeeper-watcher:dev", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--version"}}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
				{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
			},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields:      []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: gateLabel, Operator: op, Values: []string{"yes"}}},
				}},
			}}},
		},
	}
	require.NoError(t, r.client.Create(t.Context(), pod))
	r.eventually(t, func(c *assert.CollectT) {
		var conditions []string
		for _, one := range r.podNamed(c, pod.Name).Status.Conditions {
			conditions = append(conditions, one.Reason)
		}
		assert.Contains(c, conditions, corev1.PodReasonUnschedulable)
	}, "the pod is pending")
	return pod.Name
}

// podNamed returns a pod, empty if it is gone.
func (r *realCluster) podNamed(t require.TestingT, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	err := r.client.Get(context.Background(), types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}, pod)
	require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	return pod
}
