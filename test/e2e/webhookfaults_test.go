package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// TestWebhookThatDoesNotKnowWhatIsKeptLosesNothing changes the flags of the processors, but not
// those of the webhook.
func TestWebhookThatDoesNotKnowWhatIsKeptLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher(annotationsFlag, taintsFlag)
	e.processor(annotationsFlag, taintsFlag)
	e.webhooks().runDiffering()
	name := e.name("node")
	e.registerWith("kubectl", name, map[string]string{"example.com/owner": "team-a"}, noSchedule("dedicated", "gpu"))
	e.set(name, "rack", "r1")
	want := labelSet{"rack": "r1", labels.AnnotationKey("example.com/owner"): "team-a", labels.TaintKey("dedicated", "NoSchedule"): "gpu"}
	e.saved(name, want)
	e.delete(name)
	e.registerWith("kubelet", name, nil)
	second := e.node(t, name)
	e.noted(second)
	e.settle()
	assert.Equal(t, want, e.record(t, name).Labels, "no user has removed anything")
	assert.Equal(t, []corev1.Taint{noSchedule("dedicated", "gpu")}, e.taintsOf(t, name))
	assert.Equal(t, "team-a", e.node(t, name).Annotations["example.com/owner"])
}

// TestGateThatIsClosedLaterIsOpened acts as Karpenter, which writes the labels and taints of its
// template when it registers a Node that the kubelet has created. This closes the gate for the
// first time, or once more.
func TestGateThatIsClosedLaterIsOpened(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	e.webhooks().run("--gate")
	fresh, returned := e.name("fresh"), e.name("returned")
	e.create(returned, labelSet{"rack": "r1"})
	e.saved(returned, labelSet{"rack": "r1"})
	e.delete(returned)
	assert.True(t, isGated(e.join(e.client, returned, nil)))
	assert.False(t, isGated(e.join(e.client, fresh, labelSet{"own": "1"})))
	e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, returned))) }, "it is opened once")
	e.saved(fresh, labelSet{"own": "1"})
	for name, want := range map[string]labelSet{fresh: {"own": "1", "registered": "yes"}, returned: {"rack": "r1", "registered": "yes"}} {
		n := e.node(t, name)
		before := n.DeepCopy()
		n.Labels[labels.Marker], n.Labels["registered"] = labels.Pending, "yes"
		n.Spec.Taints = append(n.Spec.Taints, nodeview.StartupTaint())
		require.NoError(t, e.client.Patch(t.Context(), n, client.MergeFrom(before), client.FieldOwner("karpenter")))
		e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, name))) }, "the gate of %s is opened", name)
		e.saved(name, want)
		own, marker := e.labels(t, name)
		assert.Equal(t, want, own)
		assert.NotEqual(t, labels.Pending, marker)
	}
}

// TestLabelOfTheRequestOutlivesAStaleAnswer checks that a label in the create request stays if the
// last record does not contain its key.
func TestLabelOfTheRequestOutlivesAStaleAnswer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const mode = "--restore-mode=merge"
	e.watcher()
	p := e.processor(mode)
	e.webhooks().run(mode)
	name := e.name("node")
	e.create(name, labelSet{"rack": "r1", "team": "blue"})
	e.saved(name, labelSet{"rack": "r1", "team": "blue"})
	e.stop(p)
	e.remove(name, "rack")
	e.delete(name)
	require.True(t, isGated(e.join(e.client, name, labelSet{"rack": "of-the-template"})), "the old answer would replace rack")
	e.processor(mode)
	e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, name))) }, "it is restored")
	e.settle()
	own, _ := e.labels(t, name)
	assert.Equal(t, labelSet{"rack": "of-the-template", "team": "blue"}, own)
}

// TestNodeWithALabelThatAPolicyRefusesJoins checks that the node joins without the label, and gets
// it later. If the webhook does not know of the policy, the node joins with its second request.
func TestNodeWithALabelThatAPolicyRefusesJoins(t *testing.T) {
	t.Parallel()
	t.Run("held back", func(t *testing.T) {
		t.Parallel()
		joinsWithoutRefused(t, 0, labelSet{"rack": "r1"}, "--hold-back=guarded,example.com/guarded-*")
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		joinsWithoutRefused(t, 1, labelSet{})
	})
}

func joinsWithoutRefused(t *testing.T, refusals int, has labelSet, flags ...string) {
	t.Helper()
	e := newEnv(t)
	e.watcher()
	e.processor()
	e.webhooks().run(flags...)
	name, want := e.name("node"), labelSet{"guarded": "yes", "rack": "r1"}
	e.create(name, want)
	e.saved(name, want)
	e.delete(name)
	e.refuseTo(admissionregistrationv1.Create, "guarded", "nobody creates guarded nodes")
	e.eventually(func(c *assert.CollectT) {
		refused := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.prefix + "refused", Labels: labelSet{"guarded": "yes"}}}
		assert.Error(c, e.client.Create(t.Context(), refused, client.DryRunAll))
	}, "the policy is in force")
	e.webhookKnows()
	for range refusals {
		require.ErrorContains(t, e.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}), "nobody creates guarded nodes")
	}
	n := e.join(e.client, name, nil)
	assert.True(t, isGated(n))
	own, marker := labels.Split(n.Labels)
	assert.Equal(t, has, own)
	assert.Equal(t, labels.Pending, marker)
	e.restored(name, want)
	e.settle()
	assert.False(t, isGated(e.node(t, name)))
}

// TestWebhookWithAnotherRestrictedModeLosesNothing checks that no labels are lost from the record.
func TestWebhookWithAnotherRestrictedModeLosesNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor("--restricted-labels=keep")
	e.webhooks().runDiffering("--restricted-labels=drop")
	name := e.name("node")
	e.create(name, nil)
	e.set(name, "rack", "r1")
	e.set(name, "node-role.kubernetes.io/worker", "")
	want := labelSet{"rack": "r1", "node-role.kubernetes.io/worker": ""}
	e.saved(name, want)
	e.delete(name)
	second := e.join(e.client, name, nil)
	e.noted(second)
	e.settle()
	assert.Equal(t, want, e.record(t, name).Labels, "no user has removed anything")
	e.hasRestored(t, name, want)
}

// TestWebhookWithAnotherModeDecidesNothing checks that the webhook does not set the marker of the
// record: otherwise the processors would take the labels that the webhook omitted for edits.
func TestWebhookWithAnotherModeDecidesNothing(t *testing.T) {
	t.Parallel()
	for webhooks, processors := range map[string]string{"merge": "replace", "replace": "merge"} {
		t.Run(webhooks+" beside "+processors, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor("--restore-mode=" + processors)
			name := e.name("node")
			e.create(name, labelSet{"rack": "r1"})
			e.saved(name, labelSet{"rack": "r1"})
			e.webhooks().runDiffering("--restore-mode=" + webhooks)
			e.delete(name)
			n := e.join(e.client, name, labelSet{"old": "1"})
			assert.Equal(t, labelSet{"old": "1", labels.Marker: labels.Pending}, n.Labels)
			assert.True(t, isGated(n))
			want := labelSet{"rack": "r1"}
			if processors == "merge" {
				want["old"] = "1"
			}
			e.restored(name, want)
			e.settle()
			assert.False(t, isGated(e.node(t, name)))
			assert.Equal(t, want, e.record(t, name).Labels)
		})
	}
}

// TestNodeThatItsLabelsDeselectIsNotGated covers a request that matches the selector, while
// the Node with its saved labels does not.
func TestNodeThatItsLabelsDeselectIsNotGated(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.watcher(), e.processor()
	name := e.name("node")
	e.create(name, nil)
	e.edit(name, map[string]*string{"env": new("test"), "rack": new("r1")})
	e.saved(name, labelSet{"rack": "r1", "env": "test"})
	e.delete(name)
	e.settle()
	e.stop(w)
	e.stop(p)
	const selector = "--node-selector=env!=test"
	e.watcher(selector)
	e.processor(selector)
	e.webhooks().run("--gate", selector)
	n := e.join(e.client, name, nil)
	assert.Empty(t, n.Labels, "it joins untouched")
	assert.False(t, isGated(n))
}

// TestGateOpensAfterTheNodeIsTakenOut checks that the gate opens for a node that leaves the
// selection.
func TestGateOpensAfterTheNodeIsTakenOut(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const selector = "--node-selector=!skip"
	e.watcher(selector)
	p := e.processor(selector)
	e.webhooks().run("--gate", selector)
	name := e.name("node")
	e.create(name, nil)
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{"rack": "r1"})
	e.stop(p)
	e.delete(name)
	n := e.join(e.client, name, nil)
	require.True(t, isGated(n))
	e.set(name, "skip", "")
	e.processor(selector)
	e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, name))) }, "the gate is opened")
}

// TestNodeWithTheMarkerOfItsRecord creates a Node from a saved file that has been edited since.
func TestNodeWithTheMarkerOfItsRecord(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	e.webhooks().run("--gate")
	name := e.name("node")
	e.create(name, nil)
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{"rack": "r1"})
	e.delete(name)
	second := e.join(e.client, name, nil)
	e.restored(name, labelSet{"rack": "r1"})
	e.applied(second)
	copied := e.node(t, name)
	require.False(t, isGated(copied))
	edited := e.set(name, "rack", "r2") // after the copy
	e.saved(name, labelSet{"rack": "r2"})
	e.applied(edited)
	e.stop(p)
	e.delete(name)
	copied.ResourceVersion, copied.UID, copied.CreationTimestamp = "", "", metav1.Time{}
	e.webhookKnows()
	require.NoError(t, e.client.Create(t.Context(), copied, client.FieldOwner("kubectl-create")))
	assert.True(t, isGated(copied))
	assert.Equal(t, "r2", copied.Labels["rack"])
	e.processor()
	e.restored(name, labelSet{"rack": "r2"})
	e.settle()
	assert.False(t, isGated(e.node(t, name)))
}

// TestGateOpensForRecordsThatAreCorrectedOrRemoved corrects and removes records while the nodes
// wait.
func TestGateOpensForRecordsThatAreCorrectedOrRemoved(t *testing.T) {
	t.Parallel()
	for what, mend := range map[string]func(e *env, cm *corev1.ConfigMap){
		"corrected": func(e *env, cm *corev1.ConfigMap) {
			cm.Data["rack"] = "r3"
			require.NoError(e.t, e.client.Update(e.t.Context(), cm))
		},
		"removed": func(e *env, cm *corev1.ConfigMap) { require.NoError(e.t, e.client.Delete(e.t.Context(), cm)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor()
			w := e.webhooks()
			name := e.name("node")
			first := e.create(name, nil)
			e.set(name, "rack", "r1")
			e.saved(name, labelSet{"rack": "r1"})
			e.delete(name)
			e.ended(first)
			cm := e.recordObject(t, name)
			cm.Data["rack"] = "no legal value!"
			require.NoError(t, e.client.Update(t.Context(), cm))
			w.run()
			n := e.join(e.kubelet(name), name, nil)
			assert.True(t, isGated(n))
			mend(e, e.recordObject(t, name))
			e.eventually(func(c *assert.CollectT) { assert.False(c, isGated(e.node(c, name))) }, "the gate is opened")
			if what == "corrected" {
				e.restored(name, labelSet{"rack": "r3"})
			}
		})
	}
}

// TestEditsBehindTheGateStay checks that a restore keeps edits of a node that waits for it.
func TestEditsBehindTheGateStay(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	e.webhooks().run("--gate")
	name := e.name("node")
	e.create(name, nil)
	e.edit(name, map[string]*string{"rack": new("r1"), "team": new("blue")})
	e.saved(name, labelSet{"rack": "r1", "team": "blue"})
	e.stop(p)
	e.edit(name, map[string]*string{"team": new("red")})
	e.delete(name)
	n := e.join(e.client, name, nil)
	require.True(t, isGated(n))
	e.edit(name, map[string]*string{"team": new("green"), "added": new("1")}) // between creation and restore
	e.processor()
	e.restored(name, labelSet{"rack": "r1", "team": "green", "added": "1"})
	assert.False(t, isGated(e.node(t, name)))
	e.settle()
}
