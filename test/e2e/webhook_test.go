package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/webhooks"
)

// site is the environment for the webhooks of one test.
type site struct {
	*env
	*webhooks.Site
}

// webhooks creates the Service, the Secret and the configuration for the webhooks that a test
// starts. The API server's timeout for them is longer than the machine may stall.
func (e *env) webhooks() *site {
	e.t.Helper()
	return e.webhooksWith(30)
}

// webhooksWith does the same with the API server's timeout in seconds.
func (e *env) webhooksWith(timeout int32) *site {
	e.t.Helper()
	e.ownCluster()
	s := &site{e, &webhooks.Site{Namespace: e.members, Name: e.prefix + "webhook", Prefix: e.prefix, TimeoutSeconds: timeout}}
	require.NoError(e.t, s.Install(e.t.Context(), e.client))
	e.t.Cleanup(func() {
		assert.NoError(e.t, client.IgnoreNotFound(e.client.Delete(context.WithoutCancel(e.t.Context()), s.Configuration())))
	})
	return s
}

// run starts a webhook and returns when the API server calls it.
func (s *site) run(args ...string) *programs.Program {
	s.t.Helper()
	p := s.start("webhook", s.kubeconfig, append(s.Flags(), args...)...)
	s.ready(p)
	// The API server learns the certificate from a watch, and the webhook learns the records from
	// one.
	s.eventually(func(c *assert.CollectT) {
		answers, err := s.Answers(s.t.Context(), s.client, s.metadata)
		assert.NoError(c, err)
		assert.True(c, answers)
	}, "the API server asks %s", p.Identity)
	s.asked = true
	return p
}

// webhookKnows waits until the webhook that the API server calls has seen every current record: it
// receives them in order, and already answers from the last one.
func (e *env) webhookKnows() {
	e.t.Helper()
	name := e.name("last-" + rand.String(6))
	last := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: name}, Data: map[string]string{labels.Marker: "1", "last": "yes"}}
	require.NoError(e.t, e.client.Create(e.t.Context(), last))
	e.eventually(func(c *assert.CollectT) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(c, e.client.Create(e.t.Context(), n, client.DryRunAll))
		assert.Equal(c, "yes", n.Labels["last"])
	}, "the webhook has seen the last record")
	require.NoError(e.t, e.client.Delete(e.t.Context(), last))
}

// runDiffering starts a webhook with flags that differ from the processors', and returns when the
// API server calls it.
func (s *site) runDiffering(args ...string) {
	s.t.Helper()
	p := s.start("webhook", s.kubeconfig, append(s.Flags(), args...)...)
	s.ready(p)
	s.eventually(func(c *assert.CollectT) {
		asked := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.prefix + "asked"}}
		assert.NoError(c, s.client.Create(s.t.Context(), asked, client.DryRunAll))
		assert.Equal(c, labels.Pending, asked.Labels[labels.Marker], "it is uncertain about every node")
	}, "the API server asks %s", p.Identity)
}

// kubelet returns a client with the identity of a node's kubelet.
func (e *env) kubelet(node string) client.Client {
	e.t.Helper()
	path, err := e.plane.KubeconfigFor("system:node:"+node, "system:nodes")
	require.NoError(e.t, err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + node}},
	}
	require.NoError(e.t, e.client.Create(e.t.Context(), binding))
	e.t.Cleanup(func() { assert.NoError(e.t, e.client.Delete(context.WithoutCancel(e.t.Context()), binding)) })
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(e.t, err)
	cfg.UserAgent = "kubelet/v1.36.3"
	kubelet, err := client.New(cfg, client.Options{})
	require.NoError(e.t, err)
	e.eventually(func(c *assert.CollectT) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes"},
		}}
		require.NoError(c, kubelet.Create(e.t.Context(), review))
		assert.True(c, review.Status.Allowed)
	}, "the kubelet of %s may register", node)
	return kubelet
}

// versions records every version of a Node from now on.
func (e *env) versions(name string) func() []*corev1.Node {
	e.t.Helper()
	end, err := webhooks.Versions(e.t.Context(), e.client, name)
	require.NoError(e.t, err)
	return end
}

func isGated(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint) }

// join creates a Node with the given client, and returns its first version. By then, a webhook
// knows the latest records.
func (e *env) join(as client.Client, name string, own labelSet) *corev1.Node {
	e.t.Helper()
	if e.asked {
		e.webhookKnows()
	}
	e.nodes[name] = true
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}, Spec: corev1.NodeSpec{Unschedulable: true}}
	require.NoError(e.t, as.Create(e.t.Context(), n))
	return n
}

func TestWebhookPutsLabelsBackInTheCreateRequest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	e.webhooks().run()
	name := e.name("node")
	kubelet := e.kubelet(name)
	e.join(kubelet, name, labelSet{"kubernetes.io/os": "linux"})
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{"kubernetes.io/os": "linux", "rack": "r1"})
	for range 3 {
		saved := e.record(t, name).Revision
		e.delete(name)
		n := e.join(kubelet, name, labelSet{"kubernetes.io/os": "linux"})
		own, marker := labels.Split(n.Labels)
		assert.Equal(t, labelSet{"kubernetes.io/os": "linux", "rack": "r1"}, own, "of the first version")
		assert.Equal(t, saved.String(), marker)
		assert.False(t, isGated(n))
		e.eventually(func(c *assert.CollectT) {
			assert.Equal(c, n.UID, e.record(c, name).Source, "the record follows the new incarnation")
		}, "the return is noted")
		e.drained(name)
		owners := e.owners(t, name)
		assert.Equal(t, []string{"nodekeeper-webhook Update"}, owners["f:"+labels.Marker], "no processor has set the labels")
		assert.NotContains(t, owners["f:rack"], "nodekeeper-webhook Update")
	}
	e.settle()
	e.hasRestored(t, name, labelSet{"kubernetes.io/os": "linux", "rack": "r1"})
}

// TestFirstAnswerKnowsTheRecords checks that a webhook has read the records when it becomes ready,
// and does not start reading at the first request. All its rights to read are revoked in between.
func TestFirstAnswerKnowsTheRecords(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createNamespaces()
	w := e.webhooks()
	name, user := e.name("node"), e.prefix+"reader"
	saved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: name}, Data: map[string]string{labels.Marker: "1", "rack": "r1"}}
	require.NoError(t, e.client.Create(t.Context(), saved))
	kubeconfig, err := e.plane.KubeconfigFor(user)
	require.NoError(t, err)
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	require.NoError(t, e.client.Create(t.Context(), rights))
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	reader, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	e.eventually(func(c *assert.CollectT) {
		assert.NoError(c, reader.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(e.metadata)))
	}, "it may read records")
	e.ready(w.start("webhook", kubeconfig, w.Flags()...))
	require.NoError(t, e.client.Delete(t.Context(), rights))
	e.eventually(func(c *assert.CollectT) {
		assert.True(c, apierrors.IsForbidden(reader.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(e.metadata))))
	}, "it may not read records any more")

	object, err := json.Marshal(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
	require.NoError(t, err)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "1", Name: name, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object}},
	}
	body, err := json.Marshal(review)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.Address()+"/nodes", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer direct.CloseIdleConnections()
	response, err := direct.Do(request)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it was read
	require.NoError(t, json.NewDecoder(response.Body).Decode(&review))
	require.NotNil(t, review.Response)
	assert.Empty(t, review.Response.Warnings)
	assert.Contains(t, string(review.Response.Patch), `{"op":"add","path":"/metadata/labels/rack","value":"r1"}`)
}

// TestKubeletGetsTheRestWithTheRemovalOfTheTaint checks that no version of the Node lacks both the
// taint and the labels.
func TestKubeletGetsTheRestWithTheRemovalOfTheTaint(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor("--restricted-labels=keep")
	e.webhooks().run("--restricted-labels=keep")
	name := e.name("node")
	kubelet := e.kubelet(name)
	e.join(kubelet, name, nil)
	want := labelSet{"rack": "r1", "node-role.kubernetes.io/worker": "", "example.k8s.io/pool": "a"}
	for key, value := range want {
		e.set(name, key, value)
	}
	e.saved(name, want)
	e.delete(name)
	versions := e.versions(name)
	first := e.join(kubelet, name, nil)
	assert.Equal(t, labelSet{"rack": "r1", labels.Marker: labels.Pending}, first.Labels)
	assert.True(t, isGated(first))
	e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, name))) }, "the gate is opened")
	e.settle()
	e.hasRestored(t, name, want)
	for _, n := range versions() {
		if n.UID == first.UID && !isGated(n) {
			own, _ := labels.Split(n.Labels)
			assert.Equal(t, want, own, "a version without the taint")
		}
	}
}

// TestFailingWebhookHoldsNoNodeUp also checks that the processors do the work that the webhook
// did not.
func TestFailingWebhookHoldsNoNodeUp(t *testing.T) {
	t.Parallel()
	freeze := func(w *site, p *programs.Program) { require.NoError(w.t, p.Freeze(w.t.Context())) }
	thaw := func(w *site, p *programs.Program) { require.NoError(w.t, p.Signal(syscall.SIGCONT)) }
	for what, tc := range map[string]struct {
		fail  func(w *site, p *programs.Program)
		after func(w *site, p *programs.Program) // when the node has joined
	}{
		"down":    {func(w *site, p *programs.Program) { require.NoError(w.t, p.Kill()) }, thaw},
		"stopped": {freeze, func(*site, *programs.Program) {}},
		"slow":    {freeze, thaw}, // it answers after the API server has continued without it
		"not trusted": {func(w *site, p *programs.Program) {
			require.NoError(w.t, p.Kill()) // a running webhook would repair the configuration
			foreign := &corev1.Secret{}
			require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.members, Name: "webhook-certificate"}, foreign))
			foreign.Data = nil
			require.NoError(w.t, w.client.Update(w.t.Context(), foreign))
			w.ready(w.start("webhook", w.kubeconfig, append(w.Flags(), "--webhook-configuration="+w.prefix+"other")...))
		}, thaw},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor()
			w := e.webhooksWith(1)
			p := w.run()
			name := e.name("node")
			e.create(name, nil)
			e.set(name, "rack", "r1")
			e.saved(name, labelSet{"rack": "r1"})
			e.delete(name)
			tc.fail(w, p)
			begun := time.Now()
			n := e.create(name, nil)
			assert.Less(t, time.Since(begun), 29*time.Second, "a webhook holds up a node for its timeout of a second at most; an API server allows 30")
			tc.after(w, p)
			assert.NotContains(t, n.Labels, "rack")
			e.restored(name, labelSet{"rack": "r1"})
			e.settle()
			require.NoError(t, p.Signal(syscall.SIGCONT))
		})
	}
}

// TestStaleAnswerIsMadeGood covers edits that are queued and not yet in the record from which the
// webhook answers.
func TestStaleAnswerIsMadeGood(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"--restore-mode=replace", "--restore-mode=merge"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			p := e.processor(mode)
			e.webhooks().run(mode)
			name := e.name("node")
			e.create(name, nil)
			e.edit(name, map[string]*string{"rack": new("r1"), "removed": new("1")})
			e.saved(name, labelSet{"rack": "r1", "removed": "1"})
			e.stop(p)
			e.edit(name, map[string]*string{"rack": new("r2"), "removed": nil, "new": new("1")})
			e.delete(name)
			n := e.join(e.client, name, nil)
			assert.Equal(t, "r1", n.Labels["rack"], "as the record has it")
			assert.Equal(t, "1", n.Labels["removed"])
			e.processor(mode)
			e.eventually(func(c *assert.CollectT) {
				own, _ := e.labels(c, name)
				assert.Equal(c, labelSet{"rack": "r2", "new": "1"}, own)
			}, "the last labels are back")
			e.settle()
			own, _ := e.labels(t, name)
			assert.Equal(t, labelSet{"rack": "r2", "new": "1"}, own)
		})
	}
}

func TestGateIsOpenedWithTheRestoreOrAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	e.webhooks().run("--gate")
	name, alone := e.name("node"), e.name("by-itself")
	assert.False(t, isGated(e.join(e.client, name, nil)), "a new node joins untouched")
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{"rack": "r1"})
	e.stop(p)
	e.delete(name)
	versions := e.versions(name)
	n := e.join(e.client, name, nil)
	assert.True(t, isGated(n))
	// A kubelet that registers with the taint has no record yet.
	e.nodes[alone] = true
	require.NoError(t, e.client.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: alone, Labels: labelSet{"own": "1", labels.Marker: labels.Pending}},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: "other", Effect: corev1.TaintEffectNoExecute}, {Key: nodeview.StartupTaintKey, Effect: corev1.TaintEffectNoSchedule},
		}},
	}))
	e.processor()
	e.eventually(func(c *assert.CollectT) {
		for _, each := range []string{name, alone} {
			assert.False(c, isGated(e.node(c, each)), each)
		}
	}, "every gate is opened")
	e.settle()
	e.hasRestored(t, name, labelSet{"rack": "r1"})
	assert.Equal(t, labelSet{"own": "1"}, e.node(t, alone).Labels, "also without the marker")
	assert.Contains(t, e.taintsOf(t, alone), corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoExecute})
	for _, v := range versions() {
		if v.UID == n.UID && !isGated(v) {
			own, _ := labels.Split(v.Labels)
			assert.Equal(t, labelSet{"rack": "r1"}, own)
		}
	}
}
