package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodeview"
)

// oneOf returns a key that a pattern selects.
func oneOf(pattern string) string {
	key := strings.Replace(pattern, "*.", "some.", 1)
	if name, isInAll := strings.CutPrefix(key, "*/"); isInAll {
		return "some.example.com/" + name
	}
	if prefix, isPrefix := strings.CutSuffix(key, "*"); isPrefix {
		return prefix + "any"
	}
	return key
}

// Each component lets the processors change the fields that it is for, and no others.
func TestComponentsAllowTaintsAndAnnotations(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	const notReady = `{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}` // the API server sets it, and it must stay
	const spec, never, annotations, managed = "the spec of a Node", "the taints that Kubernetes and other programs manage", "the annotations of a Node", "the annotations that Kubernetes and other programs manage"
	taint, annotation := `{"spec":{"taints":[`+notReady+`,{"key":"a","effect":"NoExecute"}]}}`, `{"metadata":{"annotations":{"a":"b"}}}`
	for _, tc := range []struct {
		components []string
		may        []string
		mayNot     map[string]string
	}{
		{[]string{withTaints}, []string{taint, `{"spec":{"taints":[` + notReady + `]},"metadata":{"labels":{"a":"b"}}}`}, map[string]string{
			annotation:                        annotations,
			`{"spec":{"unschedulable":null}}`: spec,
			`{"spec":{"taints":[` + notReady + `,{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}`:                          never,
			`{"spec":{"taints":[` + notReady + `,{"key":"a","effect":"NoExecute"},{"key":"x.karpenter.sh/disrupted","effect":"NoSchedule"}]}}`: never,
			`{"spec":{"taints":[` + notReady + `,{"key":"ToBeDeletedByClusterAutoscaler","value":"1","effect":"NoSchedule"}]}}`:                never,
			`{"spec":{"taints":[` + notReady + `,{"key":"a","effect":"NoExecute"}]},"metadata":{"annotations":{"a":"b"}}}`:                     annotations,
		}},
		{[]string{withAnnotations}, []string{
			annotation, `{"metadata":{"annotations":null,"labels":{"a":"b"}}}`,
			`{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true","cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}}}`,
		}, map[string]string{
			taint: spec,
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`: managed,
		}},
		{[]string{withAnnotations, withTaints}, []string{taint, annotation}, map[string]string{`{"spec":{"unschedulable":null}}`: spec}},
	} {
		v := variant{base, tc.components}
		t.Run(v.String(), func(t *testing.T) {
			installObjects(t, c, v.render(t))
			processor, full := accountOf(t, c, "processor"), addNode(t, c, fullNode())
			try := func(patch string) error {
				return processor.Patch(t.Context(), full.DeepCopy(), merge(patch), client.DryRunAll)
			}
			for _, patch := range tc.may {
				require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, try(patch), patch) }, patience, period, "the policy is the component's")
			}
			for patch, why := range tc.mayNot {
				refused(t, try(patch), why, patch)
			}
			checkGate(t, c, processor, slices.Contains(tc.components, withTaints))
			for _, pattern := range nodeview.NeverTaints {
				if slices.Contains(tc.components, withTaints) {
					patch := `{"spec":{"taints":[` + notReady + `,{"key":"` + oneOf(pattern) + `","effect":"PreferNoSchedule"}]}}`
					refused(t, try(patch), never, patch)
				}
			}
			for _, pattern := range nodeview.NeverAnnotations {
				if slices.Contains(tc.components, withAnnotations) {
					patch := `{"metadata":{"annotations":{"` + oneOf(pattern) + `":"x"}}}`
					refused(t, try(patch), managed, patch)
				}
			}
		})
	}
	// The other tests use the policy of the base.
	install(t, c)
	processor, full := accountOf(t, c, "processor"), addNode(t, c, fullNode())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		refused(c, processor.Patch(t.Context(), full.DeepCopy(), merge(annotation), client.DryRunAll), annotations)
		refused(c, processor.Patch(t.Context(), full.DeepCopy(), merge(taint), client.DryRunAll), spec)
	}, patience, period, "the policy is that of the base again")
}

// checkGate checks that the startup taint may be removed with any component, alone or together with
// preserved taints if these may change, and that it may not be added.
func checkGate(t *testing.T, c, processor client.Client, taintsMayChange bool) {
	t.Helper()
	ungated, gated := addNode(t, c, fullNode()), addNode(t, c, gatedNode())
	assert.NoError(t, changing(processor, gated, opens))
	isForbidden := func(err error) { assert.True(t, apierrors.IsForbidden(err), "%v", err) }
	isForbidden(changing(processor, ungated, func(spec *corev1.NodeSpec) { spec.Taints = append(spec.Taints, nodeview.StartupTaint()) }))
	isForbidden(changing(processor, gated, func(spec *corev1.NodeSpec) { gateOf(spec).Effect = corev1.TaintEffectNoExecute }))
	isForbidden(changing(processor, gated, opensAnd(func(spec *corev1.NodeSpec) {
		spec.Taints = append(spec.Taints, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})
	})))
	with := changing(processor, gated, opensAnd(func(spec *corev1.NodeSpec) {
		spec.Taints = append(spec.Taints, corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule})
	}))
	if taintsMayChange {
		assert.NoError(t, with)
	} else {
		isForbidden(with)
	}
}
