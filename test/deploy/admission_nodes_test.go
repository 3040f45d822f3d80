package deploy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/processor/protection"
)

const othersFinalizer = "example.com/keep"

// bareNode has none of the optional fields that the policy compares. fullNode has all of them.
func bareNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "bare-"}}
}

func fullNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "full-",
			Labels:       map[string]string{"rack": "r7"},
			Annotations:  map[string]string{"example.com/a": "b"},
			Finalizers:   []string{othersFinalizer, protection.Finalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "example.com/v1", Kind: "Machine", Name: "m", UID: "u",
			}},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "cloud://m", Unschedulable: true,
			Taints: []corev1.Taint{{Key: "example.com/t", Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

// gatedNode is a fullNode with the startup taint between two others.
func gatedNode() *corev1.Node {
	node := fullNode()
	node.GenerateName = "gated-"
	node.Spec.Taints = append(node.Spec.Taints, nodeview.StartupTaint(), corev1.Taint{Key: "example.com/late", Effect: corev1.TaintEffectNoExecute, Value: "v"})
	return node
}

// changing patches the differences that change makes in the spec.
func changing(c client.Client, node *corev1.Node, change func(spec *corev1.NodeSpec)) error {
	changed := node.DeepCopy()
	change(&changed.Spec)
	return c.Patch(context.Background(), changed, client.MergeFrom(node), client.DryRunAll)
}

func opens(spec *corev1.NodeSpec) {
	spec.Taints = slices.DeleteFunc(spec.Taints, nodeview.IsStartupTaint)
}

// opensAnd opens the gate and makes a further change.
func opensAnd(change func(spec *corev1.NodeSpec)) func(spec *corev1.NodeSpec) {
	return func(spec *corev1.NodeSpec) {
		opens(spec)
		change(spec)
	}
}

// gateOf returns the startup taint of a Node.
func gateOf(spec *corev1.NodeSpec) *corev1.Taint {
	return &spec.Taints[slices.IndexFunc(spec.Taints, nodeview.IsStartupTaint)]
}

// A processor cannot add it, either.
func TestProcessorRemovesTheStartupTaintAndNoOther(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	processor := accountOf(t, c, "processor")
	another := corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}
	otherwise := corev1.Taint{Key: nodeview.StartupTaintKey, Effect: corev1.TaintEffectNoExecute}
	ungated, gated := addNode(t, c, fullNode()), addNode(t, c, gatedNode())
	for name, tc := range map[string]struct {
		node   *corev1.Node
		change func(spec *corev1.NodeSpec)
	}{
		"adds it":               {ungated, func(spec *corev1.NodeSpec) { spec.Taints = append(spec.Taints, nodeview.StartupTaint()) }},
		"adds it as the only":   {ungated, func(spec *corev1.NodeSpec) { spec.Taints = []corev1.Taint{nodeview.StartupTaint()} }},
		"with another effect":   {ungated, func(spec *corev1.NodeSpec) { spec.Taints = append(spec.Taints, otherwise) }},
		"removes all":           {gated, func(spec *corev1.NodeSpec) { spec.Taints = nil }},
		"removes another":       {gated, func(spec *corev1.NodeSpec) { spec.Taints = spec.Taints[1:] }},
		"reorders":              {gated, func(spec *corev1.NodeSpec) { slices.Reverse(spec.Taints) }},
		"changes its value":     {gated, func(spec *corev1.NodeSpec) { gateOf(spec).Value = "x" }},
		"changes its effect":    {gated, func(spec *corev1.NodeSpec) { gateOf(spec).Effect = corev1.TaintEffectNoExecute }},
		"and removes another":   {gated, opensAnd(func(spec *corev1.NodeSpec) { spec.Taints = spec.Taints[1:] })},
		"and adds another":      {gated, opensAnd(func(spec *corev1.NodeSpec) { spec.Taints = append(spec.Taints, another) })},
		"and changes a value":   {gated, opensAnd(func(spec *corev1.NodeSpec) { spec.Taints[0].Value += "x" })},
		"and changes an effect": {gated, opensAnd(func(spec *corev1.NodeSpec) { spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule })},
		"and reorders":          {gated, opensAnd(func(spec *corev1.NodeSpec) { slices.Reverse(spec.Taints) })},
		"and uncordons":         {gated, opensAnd(func(spec *corev1.NodeSpec) { spec.Unschedulable = false })},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, changing(c, tc.node, tc.change), "others may do it")
			refused(t, changing(processor, tc.node, tc.change), "the spec of a Node")
		})
	}
	require.NoError(t, changing(processor, gated, opens))
}

// This includes a Node with an otherwise empty spec.
func TestProcessorRemovesTheOnlyTaint(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	processor, node := accountOf(t, c, "processor"), addNode(t, c, bareNode())
	require.NoError(t, c.Patch(t.Context(), node, merge(`{"spec":{"taints":[{"key":"nodekeeper.dev/restoring","effect":"NoSchedule"}]}}`)))
	require.Len(t, node.Spec.Taints, 1)
	for name, change := range map[string]func(spec *corev1.NodeSpec){
		"and cordons":    func(spec *corev1.NodeSpec) { spec.Unschedulable = true },
		"and a provider": func(spec *corev1.NodeSpec) { spec.ProviderID = "cloud://x" },
		"and an address": func(spec *corev1.NodeSpec) { spec.PodCIDR, spec.PodCIDRs = "10.0.1.0/24", []string{"10.0.1.0/24"} },
		"and another key": func(spec *corev1.NodeSpec) {
			spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		},
	} {
		refused(t, changing(processor, node, opensAnd(change)), "the spec of a Node", name)
	}
	for _, patch := range []string{`{"spec":{"taints":null}}`, `{"spec":{"taints":[]},"metadata":{"labels":{"a":"b"}}}`} {
		assert.NoError(t, processor.Patch(t.Context(), node.DeepCopy(), merge(patch), client.DryRunAll), patch)
	}
}

// addNode creates a node, which is deleted when the test ends.
func addNode(t *testing.T, c client.Client, node *corev1.Node) *corev1.Node {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, c.Patch(ctx, node, merge(`{"metadata":{"finalizers":null}}`)))
		assert.NoError(t, c.Delete(ctx, node))
	})
	return node
}

func TestProcessorChangesOnlyLabelsAndItsFinalizerOfANode(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	processor := accountOf(t, c, "processor")
	bare, full := addNode(t, c, bareNode()), addNode(t, c, fullNode())
	const spec, annotations, owners, finalizers = "the spec of a Node", "the annotations of a Node", "the owners of a Node", "no finalizer of a Node but"
	const generateName = "the generateName of a Node"
	for name, tc := range map[string]struct {
		node       *corev1.Node
		patch, why string
	}{
		"a first taint":        {bare, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, spec},
		"another taint":        {full, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, spec},
		"no taint":             {full, `{"spec":{"taints":null}}`, spec},
		"cordon":               {bare, `{"spec":{"unschedulable":true}}`, spec},
		"uncordon":             {full, `{"spec":{"unschedulable":null}}`, spec},
		"an address range":     {bare, `{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24"]}}`, spec},
		"a provider":           {bare, `{"spec":{"providerID":"cloud://x"}}`, spec},
		"a first annotation":   {bare, `{"metadata":{"annotations":{"a":"b"}}}`, annotations},
		"one more annotation":  {full, `{"metadata":{"annotations":{"a":"b"}}}`, annotations},
		"another annotation":   {full, `{"metadata":{"annotations":{"example.com/a":"c"}}}`, annotations},
		"no annotation":        {full, `{"metadata":{"annotations":null}}`, annotations},
		"another prefix":       {full, `{"metadata":{"generateName":"x-"}}`, generateName},
		"no prefix":            {full, `{"metadata":{"generateName":null}}`, generateName},
		"an owner":             {bare, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`, owners},
		"no owner":             {full, `{"metadata":{"ownerReferences":null}}`, owners},
		"a foreign finalizer":  {bare, `{"metadata":{"finalizers":["example.com/mine"]}}`, finalizers},
		"one foreign and ours": {bare, `{"metadata":{"finalizers":["example.com/mine","nodekeeper.dev/save-labels"]}}`, finalizers},
		"another's finalizer":  {full, `{"metadata":{"finalizers":["nodekeeper.dev/save-labels"]}}`, finalizers},
		"no finalizer":         {full, `{"metadata":{"finalizers":null}}`, finalizers},
		"among labels":         {full, `{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":null}}`, spec},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, c.Patch(t.Context(), tc.node.DeepCopy(), merge(tc.patch), client.DryRunAll), "others may do it")
			refused(t, processor.Patch(t.Context(), tc.node.DeepCopy(), merge(tc.patch)), tc.why)
		})
	}
	for name, patch := range map[string]string{
		"a label":        `{"metadata":{"labels":{"a":"b"}}}`,
		"another label":  `{"metadata":{"labels":{"rack":"r8"}}}`,
		"no label":       `{"metadata":{"labels":null}}`,
		"the finalizer":  `{"metadata":{"finalizers":["example.com/keep","nodekeeper.dev/save-labels"]}}`,
		"not any more":   `{"metadata":{"finalizers":["example.com/keep"]}}`,
		"nothing at all": `{}`,
	} {
		t.Run(name, func(t *testing.T) { assert.NoError(t, processor.Patch(t.Context(), full.DeepCopy(), merge(patch))) })
	}
	for _, patch := range []string{
		`{"metadata":{"labels":{"a":"b"},"finalizers":["nodekeeper.dev/save-labels"]}}`, `{"metadata":{"labels":null,"finalizers":[]}}`,
	} {
		assert.NoError(t, processor.Patch(t.Context(), bare.DeepCopy(), merge(patch)))
	}
}

// The verb permits further types of patches besides merge patches.
func TestProcessorIsBoundInEveryKindOfPatch(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	processor, node := accountOf(t, c, "processor"), addNode(t, c, fullNode())
	apply := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + node.Name + `",` + metadata + `}}`
	}
	for name, tc := range map[string]struct {
		kind                types.PatchType
		forbidden, why, may string
	}{
		"JSON patch, of the spec": {
			types.JSONPatchType, `[{"op":"remove","path":"/spec/taints"}]`, "the spec of a Node",
			`[{"op":"replace","path":"/metadata/labels/rack","value":"r8"}]`,
		},
		"JSON patch, of finalizers": {
			types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers/0"}]`, "no finalizer of a Node but",
			`[{"op":"remove","path":"/metadata/finalizers/1"}]`,
		},
		"strategic merge, of the spec": {
			types.StrategicMergePatchType, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, "the spec of a Node",
			`{"metadata":{"labels":{"rack":"r8"}}}`,
		},
		"strategic merge, of finalizers": {
			types.StrategicMergePatchType, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/keep"]}}`, "no finalizer of a Node but",
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["nodekeeper.dev/save-labels"]}}`,
		},
		"apply": {
			types.ApplyPatchType, apply(`"annotations":{"a":"b"}`), "the annotations of a Node",
			apply(`"labels":{"rack":"r8"}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch := func(c client.Client, patch string) error {
				opts := []client.PatchOption{client.DryRunAll}
				if tc.kind == types.ApplyPatchType {
					opts = append(opts, client.ForceOwnership, client.FieldOwner("test"))
				}
				there := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
				return c.Patch(t.Context(), there, client.RawPatch(tc.kind, []byte(patch)), opts...)
			}
			assert.NoError(t, patch(c, tc.forbidden), "others may do it")
			refused(t, patch(processor, tc.forbidden), tc.why)
			assert.NoError(t, patch(processor, tc.may))
		})
	}
}

// The API server ignores or rejects the other changes, which the policy does not check.
func TestTheRestOfANodeCannotBeChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	processor, node := accountOf(t, c, "processor"), addNode(t, c, fullNode())
	for _, patch := range []string{
		`{"metadata":{"generation":77}}`, `{"metadata":{"selfLink":"/x"}}`, `{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`,
		`{"status":{"phase":"Terminated"}}`, `{"spec":{"configSource":{"configMap":{"name":"a","namespace":"b","kubeletConfigKey":"c"}}}}`,
	} {
		assert.NoError(t, processor.Patch(t.Context(), node.DeepCopy(), merge(patch)), patch)
	}
	for _, patch := range []string{
		`{"metadata":{"uid":"x"}}`, `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}`, `{"metadata":{"deletionGracePeriodSeconds":0}}`,
	} {
		assert.True(t, apierrors.IsInvalid(processor.Patch(t.Context(), node.DeepCopy(), merge(patch))), patch)
	}
	there := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), there))
	for _, n := range []*corev1.Node{node, there} { // managedFields show that the processor has tried
		n.ResourceVersion, n.ManagedFields = "", nil
	}
	assert.Equal(t, node, there)
}
