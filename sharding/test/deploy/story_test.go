package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// story is an installation of the sharder, with the programs of its manifests and of the example.
type story struct {
	client.Client

	t       *testing.T
	objects []manifests.Object
	args    map[string][]string // from the manifests, by container
}

// newStory installs the sharder with kubectl, but not the example. The programs run as processes.
func newStory(t *testing.T) *story {
	t.Helper()
	controlplane.NeedMutatingPolicies(t, plane.Kubeconfig)
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	s := &story{Client: c, t: t, args: map[string][]string{}, objects: slices.Concat(manifests.Render(t, ha), manifests.Render(t, example))}
	s.kubectl("apply", "--server-side", "-k", crd)
	s.kubectl("wait", "--for=condition=Established", "crd/clusterrings.sharding.nodekeeper.dev", "--timeout="+patience.String())
	s.kubectl("apply", "--server-side", "-k", ha)
	s.Client, err = client.New(plane.Config, client.Options{}) // with the new kind
	require.NoError(t, err)
	former := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "sharder"}} // of an earlier test
	require.NoError(t, client.IgnoreNotFound(s.Delete(t.Context(), former)))
	for _, d := range manifests.All[appsv1.Deployment](t, s.objects, "Deployment") {
		container := d.Spec.Template.Spec.Containers[0]
		s.args[container.Name] = container.Args
	}
	return s
}

func (s *story) kubectl(args ...string) {
	s.t.Helper()
	manifests.Kubectl(s.t, plane, args...)
}

// addExample installs the example, its rights before its ring. The controller that aggregates
// ClusterRoles does not run here.
func (s *story) addExample() {
	s.t.Helper()
	for _, role := range manifests.All[rbacv1.ClusterRole](s.t, s.objects, "ClusterRole") {
		if role.AggregationRule == nil {
			continue
		}
		stored := &rbacv1.ClusterRole{}
		require.NoError(s.t, s.Get(s.t.Context(), client.ObjectKeyFromObject(&role), stored))
		stored.Rules = manifests.Aggregated(s.t, s.objects, &role)
		require.NoError(s.t, s.Update(s.t.Context(), stored))
	}
	for _, obj := range manifests.Render(s.t, example) {
		if obj.GetKind() != "ClusterRing" {
			require.NoError(s.t, manifests.Apply(s.t.Context(), s.Client, obj))
		}
	}
	s.eventually(func(c *assert.CollectT) {
		s.may(c, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "secrets"})
		s.may(c, authorizationv1.ResourceAttributes{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: checksums})
	}, "the rights are in force")
	s.kubectl("apply", "--server-side", "--force-conflicts", "-k", example)
	s.t.Cleanup(func() { // while the sharder runs
		for _, ring := range []string{checksums, "widgets"} {
			assert.NoError(s.t, client.IgnoreNotFound(s.Delete(context.WithoutCancel(s.t.Context()), ringOf(ring))))
		}
		s.eventually(func(c *assert.CollectT) {
			left := &v1alpha1.ClusterRingList{}
			require.NoError(c, s.List(context.WithoutCancel(s.t.Context()), left))
			assert.Empty(c, left.Items)
		}, "the rings are gone")
		for _, obj := range []client.Object{&corev1.ConfigMap{}, &coordinationv1.Lease{}} {
			assert.NoError(s.t, s.DeleteAllOf(context.WithoutCancel(s.t.Context()), obj, client.InNamespace(checksums)))
		}
	})
}

// may asserts that the sharder has a right.
func (s *story) may(t require.TestingT, what authorizationv1.ResourceAttributes) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + system + ":sharder", ResourceAttributes: &what,
	}}
	require.NoError(t, s.Create(s.t.Context(), review))
	assert.True(t, review.Status.Allowed)
}

func ringOf(name string) *v1alpha1.ClusterRing {
	return &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// sharder starts a sharder like its pod, with a token of its service account, and waits until it is
// ready. The additional args follow those of the manifests. Like a pod, it is started again if it
// ends by itself.
func (s *story) sharder(name string, env []string, args ...string) *programs.Kept {
	s.t.Helper()
	p := s.startSharder(name, env, args...)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	require.NoError(s.t, p.WaitReady(ctx))
	return p
}

// startSharder does not wait until the sharder is ready.
func (s *story) startSharder(name string, env []string, args ...string) *programs.Kept {
	s.t.Helper()
	kubeconfig := manifests.Kubeconfig(s.t, s.Client, plane, system, "sharder")
	kept, err := programs.Keep(func() (*programs.Program, error) {
		return programs.StartWith(env, "sharder", name, kubeconfig, slices.Concat(s.args["sharder"], args)...)
	})
	require.NoError(s.t, err)
	s.ends(name, kept)
	return kept
}

// longLease is for shards that must not die in a test, even if the machine stalls for half a minute.
const longLease = "1m"

// shard starts a replica of the example like its pod.
func (s *story) shard(name string, args ...string) *programs.Program {
	s.t.Helper()
	kubeconfig := manifests.Kubeconfig(s.t, s.Client, plane, checksums, "replicas")
	p, err := programs.Launch([]string{"POD_NAME=" + name, "POD_NAMESPACE=" + checksums}, "example-checksum", name,
		slices.Concat([]string{"--kubeconfig=" + kubeconfig, "--lease-duration=" + longLease}, s.args["checksum"], args)...)
	require.NoError(s.t, err)
	s.ends(name, p)
	return p
}

// ends kills a program at the end of the test.
func (s *story) ends(name string, p interface {
	Kill() error
	Output() string
},
) {
	s.t.Cleanup(func() {
		assert.NoError(s.t, p.Kill())
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, p.Output())
		}
	})
}

// secrets creates Secrets in the namespace of the example.
func (s *story) secrets(prefix string, n int) {
	s.t.Helper()
	for i := range n {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: fmt.Sprintf("%s-%d", prefix, i)}}
		require.NoError(s.t, s.Create(s.t.Context(), secret))
		s.t.Cleanup(func() {
			assert.NoError(s.t, client.IgnoreNotFound(s.Delete(context.WithoutCancel(s.t.Context()), secret)))
		})
	}
}

// condition asserts the status and the reason of a condition of a ring.
func (s *story) condition(t require.TestingT, ring, condition string, status metav1.ConditionStatus, reason string) {
	stored := ringOf(ring)
	require.NoError(t, s.Get(s.t.Context(), client.ObjectKeyFromObject(stored), stored))
	i := slices.IndexFunc(stored.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition })
	require.GreaterOrEqual(t, i, 0, "there is no %s yet", condition)
	has := stored.Status.Conditions[i]
	assert.Equal(t, status, has.Status, "%s: %s", condition, has.Message)
	assert.Equal(t, reason, has.Reason, "%s: %s", condition, has.Message)
}

// served waits until exactly these shards have all Secrets, each with its ConfigMap.
func (s *story) served(shards ...string) {
	s.t.Helper()
	label := v1alpha1.DefaultPrefix.ShardLabel(checksums)
	s.eventually(func(c *assert.CollectT) {
		secrets, stored := &corev1.SecretList{}, &corev1.ConfigMapList{}
		require.NoError(c, s.List(s.t.Context(), secrets, client.InNamespace(checksums)))
		require.NoError(c, s.List(s.t.Context(), stored, client.InNamespace(checksums), client.HasLabels{label}))
		require.Len(c, secrets.Items, secretsOfStory)
		owners := map[string]string{}
		for _, m := range stored.Items {
			owners[m.Name] = m.Labels[label]
		}
		used := map[string]bool{}
		for _, secret := range secrets.Items {
			assert.Equal(c, secret.Labels[label], owners["checksums-"+secret.Name], secret.Name)
			used[secret.Labels[label]] = true
		}
		want := map[string]bool{}
		for _, name := range shards {
			want[name] = true
		}
		assert.Equal(c, want, used)
		s.condition(c, checksums, "Balanced", metav1.ConditionTrue, "Balanced")
	}, "the Secrets are served by "+strings.Join(shards, ", "))
}

// events returns the number of times that each event of a ring was reported, by reason.
func (s *story) events(t require.TestingT, ring string) map[string]int {
	list := &corev1.EventList{}
	require.NoError(t, s.List(s.t.Context(), list, client.InNamespace(metav1.NamespaceDefault)))
	found := map[string]int{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "ClusterRing" && e.InvolvedObject.Name == ring {
			found[e.Reason]++
			if e.Series != nil {
				found[e.Reason] += int(e.Series.Count) - 1
			}
		}
	}
	return found
}

func (s *story) eventually(condition func(c *assert.CollectT), message string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, condition, patience, period, message)
}

// merge changes a ring.
func (s *story) merge(ring, patch string) {
	s.t.Helper()
	require.NoError(s.t, s.Patch(s.t.Context(), ringOf(ring), client.RawPatch(types.MergePatchType, []byte(patch))))
}
