package library

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/programs"
)

// each is the number of Deployments for each write of a sleeper.
const each = 3

// operator is the service account of the sleepers.
const operator = "operator"

// frozen is a ring with a sleeper that is frozen with requests in hand.
type frozen struct {
	*cluster

	dir         string // of the journals
	first, next process
	program     *programs.Program
	// leaving are the Deployments that the next shard gets, and staying those that it does not get
	// while the first shard is alive.
	leaving, staying []string
	// woken is when the first shard was woken.
	woken time.Time
}

// newFrozen freezes a sleeper, web-0, with a request in hand for each of its Deployments.
func newFrozen(t *testing.T, leaseDuration time.Duration, onTimeout v1alpha1.OnTimeout) *frozen {
	t.Helper()
	f := &frozen{dir: t.TempDir(), cluster: newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Shards.ServiceAccounts, r.Spec.Fence = []string{operator}, v1alpha1.FenceDeny
		r.Spec.Resources = []v1alpha1.Resource{{
			GroupResource:       v1alpha1.GroupResource{Group: "apps", Resource: "deployments"},
			ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
		}}
		r.Spec.Handover.OnTimeout, r.Spec.Handover.DrainTimeout = onTimeout, &metav1.Duration{Duration: time.Second}
	})}
	f.permit()
	f.first, f.next = process{name: "web-0"}, process{name: "web-1"}
	f.createDeployments()
	all := slices.Concat(f.leaving, f.staying)
	f.program = f.start(&f.first, leaseDuration, len(all))
	f.eventually(func(t *assert.CollectT) {
		children := &corev1.ConfigMapList{}
		require.NoError(t, f.List(f.t.Context(), children, client.InNamespace(f.namespace), client.MatchingLabels{prefix.ShardLabel(f.ring.Name): "web-0"}))
		assert.Len(t, children.Items, len(all))
		fence := meta.FindStatusCondition(f.status(t).Conditions, "FenceInstalled")
		require.NotNil(t, fence)
		assert.Equal(t, "Installed", fence.Reason, fence.Message)
	}, "the shard has created all children, and there is a fence")
	for _, name := range all {
		f.patch(f.deployment(name), `{"metadata":{"annotations":{"`+roundAnnotation+`":"1"}}}`)
	}
	f.eventually(func(t *assert.CollectT) { assert.Contains(t, f.program.Output(), "all requests are in hand") }, "a request for each")
	from := monotonic()
	require.NoError(t, f.program.Freeze(t.Context()))
	f.first.frozen = []freeze{{from: from}}
	return f
}

// holdsLease asserts that the first shard holds its Lease, and that it has the right to work, as it
// knows it, for another minute.
func (f *frozen) holdsLease() {
	f.t.Helper()
	l := f.lease(f.t)
	assert.Equal(f.t, f.first.name, *l.Spec.HolderIdentity)
	right := time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second * 2 / 3
	assert.Less(f.t, time.Since(l.Spec.RenewTime.Time), right-time.Minute)
}

// wake resumes the first shard, which sends what it has in hand, and waits for the responses. It
// returns all writes of the shard since then.
func (f *frozen) wake() []write {
	f.t.Helper()
	f.woken, f.first.frozen[0].to = time.Now(), monotonic()
	require.NoError(f.t, f.program.Signal(syscall.SIGCONT))
	var answered []write
	f.eventually(func(t *assert.CollectT) {
		answered = nil
		seen := map[string]bool{}
		for _, w := range writes(t, f.namespace) {
			if !strings.HasPrefix(w.UserAgent, "sleeper/web-0") || w.RequestReceivedTimestamp.Before(f.woken) {
				continue
			}
			answered = append(answered, w)
			if w.wasInHand() {
				seen[w.request()] = true
			}
		}
		for _, name := range slices.Concat(f.leaving, f.staying) {
			assert.True(t, seen[inHand(name)], inHand(name))
		}
	}, "all requests that were in hand are answered")
	return answered
}

// wasInHand reports whether a sleeper kept the write in hand.
func (w write) wasInHand() bool { return strings.HasSuffix(w.UserAgent, inHandSuffix) }

// request describes the request in the form of inHand.
func (w write) request() string {
	return w.Verb + " " + w.ObjectRef.Resource + "/" + w.ObjectRef.Subresource + " " + w.ObjectRef.Name
}

// inHand returns the request that is kept in hand for a Deployment.
func inHand(name string) string {
	switch what, _, _ := strings.Cut(name, "-"); what {
	case writesStatus:
		return "patch deployments/status " + name
	case deletesObject:
		return "delete deployments/ " + name
	case writesChild:
		return "patch configmaps/ of-" + name
	case deletesChild:
		return "delete configmaps/ of-" + name
	case createsNextChild:
		return "create configmaps/ next-of-" + name
	}
	return "patch deployments/ " + name
}

// start starts a sleeper with a token that is bound to its pod.
func (f *frozen) start(p *process, leaseDuration time.Duration, hold int) *programs.Program {
	f.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: p.name},
		Spec:       corev1.PodSpec{ServiceAccountName: operator, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(f.t, f.Create(f.t.Context(), pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(f.t, f.Status().Update(f.t.Context(), pod))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: operator}}
	require.NoError(f.t, f.SubResource("token").Create(f.t.Context(), account, request))
	const name = "sleeper"
	file := filepath.Join(f.t.TempDir(), "kubeconfig")
	require.NoError(f.t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{name: {Server: f.config.Host, CertificateAuthorityData: f.config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {Token: request.Status.Token}},
		Contexts:  map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}}, CurrentContext: name,
	}, file))
	return sleeper{
		Kubeconfig: file, Ring: f.ring.Name, Namespace: f.namespace, Name: p.name, Journal: f.journal(p), LeaseDuration: leaseDuration, Hold: hold,
	}.start(f.t)
}

func (f *frozen) journal(p *process) string { return filepath.Join(f.dir, p.name) }

// permit creates the service account of the sleepers.
func (f *frozen) permit() {
	f.t.Helper()
	as := metav1.ObjectMeta{Namespace: f.namespace, Name: operator}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: as},
		&rbacv1.Role{ObjectMeta: as, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status"}, Verbs: []string{"*"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: as, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: operator},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: operator}},
		},
	} {
		require.NoError(f.t, f.Create(f.t.Context(), o))
	}
}

// createDeployments creates Deployments for each write. When a second shard joins, it gets the
// upper half of the slots (R12).
func (f *frozen) createDeployments() {
	f.t.Helper()
	for _, what := range []string{writesObject, writesStatus, deletesObject, writesChild, deletesChild, createsNextChild} {
		f.leaving = append(f.leaving, f.deployments(what, func(slot int) bool { return slot >= slots.Count/2 })...)
	}
	for _, what := range []string{writesObject, writesStatus, writesChild} {
		f.staying = append(f.staying, f.deployments(what+"-kept", func(slot int) bool { return slot < slots.Count/2 })...)
	}
}

func (f *frozen) deployments(what string, isWanted func(slot int) bool) (names []string) {
	f.t.Helper()
	for i := 0; len(names) < each; i++ {
		name := fmt.Sprintf("%s-%d", what, i)
		if !isWanted(slots.Slot(slots.Object{Group: "apps", Kind: "Deployment", Namespace: f.namespace, Name: name}.Key())) {
			continue
		}
		d, labels := f.deployment(name), map[string]string{"app": name}
		d.Spec = appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}}
		require.NoError(f.t, f.Create(f.t.Context(), d))
		names = append(names, name)
	}
	return names
}

func (f *frozen) deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
}

// isWorkOf asserts that a shard has Deployments and their children, and has done its writes on
// them.
func (f *frozen) isWorkOf(t *assert.CollectT, shard string, names []string) {
	deployments, children := f.stored(t)
	label := prefix.ShardLabel(f.ring.Name)
	for _, name := range names {
		d, child := deployments[name], children["of-"+name]
		assert.Equal(t, shard, d.Labels[label], name)
		assert.Equal(t, shard, child.Labels[label], name)
		switch what, _, _ := strings.Cut(name, "-"); what {
		case writesObject:
			assert.Equal(t, shard, d.Annotations["example.com/by"], name)
		case writesStatus:
			require.Len(t, d.Status.Conditions, 1, name)
			assert.Equal(t, shard, d.Status.Conditions[0].Reason, name)
		case writesChild:
			assert.Equal(t, shard, child.Data["by"], name)
		case createsNextChild:
			assert.Equal(t, shard, children["next-of-"+name].Data["by"], name)
		}
	}
}

// stored returns the Deployments and their children by name.
func (f *frozen) stored(t *assert.CollectT) (deployments map[string]appsv1.Deployment, children map[string]corev1.ConfigMap) {
	ds, cs := &appsv1.DeploymentList{}, &corev1.ConfigMapList{}
	require.NoError(t, f.List(f.t.Context(), ds, client.InNamespace(f.namespace)))
	require.NoError(t, f.List(f.t.Context(), cs, client.InNamespace(f.namespace)))
	deployments, children = map[string]appsv1.Deployment{}, map[string]corev1.ConfigMap{}
	for _, d := range ds.Items {
		deployments[d.Name] = d
	}
	for _, c := range cs.Items {
		children[c.Name] = c
	}
	return deployments, children
}

// check asserts that no write of the woken shard to a moved object has succeeded, that each request
// that it had in hand was answered by the expected component, and that the journals show no overlap.
func (f *frozen) check(answered []write, moved, kept []string) {
	f.t.Helper()
	results := map[string]write{} // of what was in hand, the last one if it was sent again
	for _, w := range answered {
		if w.wasInHand() {
			results[w.request()] = w
		}
		name := strings.TrimPrefix(strings.TrimPrefix(w.ObjectRef.Name, "next-"), "of-")
		if slices.Contains(moved, name) {
			assert.GreaterOrEqual(f.t, w.ResponseStatus.Code, 400, "%v", w)
		}
	}
	for _, name := range kept {
		assert.Less(f.t, results[inHand(name)].ResponseStatus.Code, 300, name)
	}
	for _, name := range moved {
		f.isRefused(results[inHand(name)], name)
	}
	f.first.log, f.next.log = readJournal(f.t, f.journal(&f.first)), readJournal(f.t, f.journal(&f.next))
	spans, objects, err := checkExclusion([]*process{&f.first, &f.next})
	require.NoError(f.t, err)
	f.t.Logf("%d pieces of work, %d objects worked on by both, %d requests in hand refused", spans, objects, len(moved))
	assert.GreaterOrEqual(f.t, objects, len(moved))
}

// isRefused asserts that the fence has refused a request that was in hand for a moved Deployment. A
// fence does not see creates: a create fails because the next shard has created the same child.
func (f *frozen) isRefused(w write, name string) {
	f.t.Helper()
	s := w.ResponseStatus
	if what, _, _ := strings.Cut(name, "-"); what == createsNextChild {
		assert.Equal(f.t, http.StatusConflict, s.Code, "%v", w)
		assert.EqualValues(f.t, metav1.StatusReasonAlreadyExists, s.Reason, "%v", w)
		return
	}
	assert.Equal(f.t, http.StatusForbidden, s.Code, "%v", w)
	assert.Contains(f.t, s.Message, "'sharding-fence-"+f.ring.Name+"'", "%v", w)
	assert.Contains(f.t, s.Message, "assigned to shard web-1, and this request comes from web-0")
}

// TestForcedMoveFromAFrozenShard covers R30, R32 and R34 with real processes: a shard is frozen
// while it has requests in hand, and still holds its Lease when Force takes its objects. When it
// wakes up, the library still sends these requests, and each fails: the fence refuses changes and
// deletions, and what the shard would create exists by then. Those for the objects that it keeps
// succeed.
func TestForcedMoveFromAFrozenShard(t *testing.T) {
	t.Parallel()
	f := newFrozen(t, 10*time.Minute, v1alpha1.Force) // it must have its right when it wakes up
	f.start(&f.next, longLease, 0)
	f.eventually(func(t *assert.CollectT) { f.isWorkOf(t, "web-1", f.leaving) }, "the next shard has done its work")
	f.holdsLease()
	answered := f.wake()
	f.eventually(func(t *assert.CollectT) {
		f.isWorkOf(t, "web-0", f.staying)
		f.isWorkOf(t, "web-1", f.leaving)
	}, "each has its objects")
	f.check(answered, f.leaving, f.staying)
}

// TestFrozenShardThatIsDead covers R32 and R34 with real processes: a shard wakes up with requests
// in hand after the sharder has taken its Lease. Each of them fails as in
// TestForcedMoveFromAFrozenShard. It keeps no object, but the message of each refusal shows that
// the API server knew the shard, and that the fence refused the request.
func TestFrozenShardThatIsDead(t *testing.T) {
	t.Parallel()
	f := newFrozen(t, 30*time.Second, v1alpha1.Wait) // it survives 20 s without CPU time before it is frozen
	f.start(&f.next, longLease, 0)
	all := slices.Concat(f.leaving, f.staying)
	f.eventually(func(t *assert.CollectT) { f.isWorkOf(t, "web-1", all) }, "the next shard has done its work")
	assert.NotEqual(t, f.first.name, *f.lease(t).Spec.HolderIdentity)
	answered := f.wake()
	select {
	case <-f.program.Done():
	case <-time.After(patience):
		require.Fail(t, "the shard that has lost its Lease goes on")
	}
	f.eventually(func(t *assert.CollectT) { f.isWorkOf(t, "web-1", all) }, "nothing has changed")
	f.check(answered, all, nil)
}
