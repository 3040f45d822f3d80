package deploy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failing is an expression that the API server accepts, but whose evaluation fails for every
// object, as the field does not exist. Only kube-controller-manager checks types, and it only
// reports errors in the status of the policy.
const failing = "object.metadata.nosuchfield == 'x'"

// failsWith is the error message of the API server.
const failsWith = "no such key: nosuchfield"

// breakPolicy makes the evaluation of a policy fail until repair is called.
func breakPolicy(t *testing.T, c client.Client, name string) (repair func()) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: name}, policy))
	require.Equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy)
	good := policy.Spec.Validations
	policy.Spec.Validations = []admissionv1.Validation{{Expression: failing}}
	require.NoError(t, c.Update(t.Context(), policy))
	repair = func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(policy), policy))
		policy.Spec.Validations = good
		require.NoError(t, c.Update(ctx, policy))
	}
	t.Cleanup(repair)
	return repair
}

func TestPolicyThatDoesNotCompileIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: "nodekeeper-nodes"}, policy))
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "object.spec == "}}
	assert.True(t, apierrors.IsInvalid(c.Update(t.Context(), policy)))
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "1 + 'a' == 2"}}
	assert.True(t, apierrors.IsInvalid(c.Update(t.Context(), policy)))
}

// The evaluation of the policy fails.
func TestRestoreWaitsForThePolicyOfNodes(t *testing.T) {
	t.Parallel()
	s := newStory(t, variant{minikube, nil})
	s.start("watcher")
	s.start("processor", "--save-delay=0")
	name, labels := "waits-"+rand.String(5), set{"rack": "r7"}
	s.create(name, labels)
	s.saved(name, labels)
	s.delete(name)
	probe := addNode(t, s.client, bareNode())
	processor := accountOf(t, s.client, "processor")
	repair := breakPolicy(t, s.client, "nodekeeper-nodes")
	s.eventually(func(c *assert.CollectT) {
		err := processor.Patch(t.Context(), probe.DeepCopy(), merge(`{"metadata":{"labels":{"a":"b"}}}`), client.DryRunAll)
		assert.True(c, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(c, err, failsWith)
	}, "the policy fails")

	s.create(name, nil) // a Node can join nevertheless
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, s.warnings(c, name, "LabelsRestoreFailed"), failsWith)
	}, "an event says why")
	s.edit(nodeNamed(name), `{"metadata":{"annotations":{"a":"b"}}}`) // other users are not affected
	assert.NotContains(t, s.labelsOf(t, name), "rack")

	repair()
	s.restored(name, labels)
}

// The evaluation of the policy fails. Meanwhile, a watcher keeps the events that it has received.
func TestRestoreWaitsForThePolicyOfConfigMaps(t *testing.T) {
	t.Parallel()
	s := newStory(t, variant{minikube, nil})
	s.start("watcher")
	watcher := s.programs[0]
	s.start("processor", "--save-delay=0")
	name, labels := "held-"+rand.String(5), set{"rack": "r7"}
	s.create(name, labels)
	s.saved(name, labels)
	repair := breakPolicy(t, s.client, "nodekeeper-configmaps")
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Create(t.Context(), aRecord("probe"), client.DryRunAll)
		assert.True(c, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(c, err, failsWith)
	}, "the policy fails for everybody")

	s.edit(nodeNamed(name), `{"metadata":{"labels":{"team":"blue"}}}`)
	s.delete(name)
	s.create(name, nil)
	s.eventually(func(c *assert.CollectT) { assert.Contains(c, watcher.Output(), failsWith) }, "the reason is logged")
	assert.NotContains(t, s.labelsOf(t, name), "rack")

	repair()
	s.restored(name, set{"rack": "r7", "team": "blue"})
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// warnings returns the notes of the events with a reason about a node.
func (s *story) warnings(t require.TestingT, node, reason string) string {
	var list eventsv1.EventList
	require.NoError(t, s.client.List(s.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
	var notes []string
	for i := range list.Items {
		if event := &list.Items[i]; event.Regarding.Name == node && event.Reason == reason {
			notes = append(notes, event.Note)
		}
	}
	return strings.Join(notes, "\n")
}

func (s *story) labelsOf(t require.TestingT, name string) map[string]string {
	node := nodeNamed(name)
	require.NoError(t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(node), node))
	return node.Labels
}

// restored waits until a returned node has these labels and the marker of a restore. The marker
// "pending" means that the restore is still to come.
func (s *story) restored(name string, labels map[string]string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		got := s.labelsOf(c, name)
		assert.NotContains(c, []string{"", "pending"}, got["labels_restored"])
		for key, value := range labels {
			assert.Equal(c, value, got[key])
		}
	}, "node "+name+" has its labels")
}
