package agents_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// noted is a Node whose labels all belong to a person in managedFields.
func noted(own, annotations set) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Labels: maps.Clone(own), Annotations: maps.Clone(annotations),
		ManagedFields: []metav1.ManagedFieldsEntry{entry("kubectl", `{"f:metadata":{"f:labels":{"f:zone":{},"f:rack":{},"f:feature.node.kubernetes.io/cpu":{},`+
			`"f:node-role.kubernetes.io/gpu":{},"f:x.node-restriction.kubernetes.io/tenant":{}},"f:annotations":{"f:owner":{}}}}`)},
	}}
}

func TestControllersClaimLabelsInAnnotations(t *testing.T) {
	own := set{
		"zone": "a", "rack": "r1", "feature.node.kubernetes.io/cpu": "x", "node-role.kubernetes.io/gpu": "", "x.node-restriction.kubernetes.io/tenant": "b",
		"annotation:owner": "team", "annotation:talos.dev/owned-labels": "…", "taint:gpu:NoSchedule": "",
	}
	const all = `"node-role.kubernetes.io/gpu","x.node-restriction.kubernetes.io/tenant"` // restricted labels are never claimed
	for name, tc := range map[string]struct {
		annotations set
		want        labels.Keys
	}{
		"Talos":                        {set{"talos.dev/owned-labels": `["zone","absent",` + all + `]`}, "annotation:talos.dev/owned-labels,zone"},
		"Talos, annotations":           {set{"talos.dev/owned-annotations": `["owner"]`}, "annotation:owner"},
		"Talos, taints":                {set{"talos.dev/owned-taints": `["gpu"]`}, "taint:gpu:NoSchedule"},
		"Cluster API":                  {set{"cluster.x-k8s.io/labels-from-machine": "node-role.kubernetes.io/gpu,rack, zone"}, "rack,zone"},
		"Cluster API, none":            {set{"cluster.x-k8s.io/labels-from-machine": ""}, ""},
		"Cluster API, others":          {set{"cluster.x-k8s.io/annotations-from-machine": "owner", "cluster.x-k8s.io/taints-from-machine": "gpu=:NoSchedule,a:NoExecute"}, "annotation:owner,taint:gpu:NoSchedule"},
		"Node Feature Discovery":       {set{"nfd.node.kubernetes.io/feature-labels": "cpu"}, "feature.node.kubernetes.io/cpu"},
		"GKE, labels":                  {set{"node.gke.io/last-applied-node-labels": "cloud.google.com/gke-nodepool=a,rack=r1,node-role.kubernetes.io/gpu=,zone=a"}, "rack,zone"},
		"GKE, taints":                  {set{"node.gke.io/last-applied-node-taints": "absent:NoExecute,gpu=:NoSchedule"}, "taint:gpu:NoSchedule"},
		"GKE, a person has changed it": {set{"node.gke.io/last-applied-node-labels": "rack=,zone=b", "node.gke.io/last-applied-node-taints": "gpu=x:NoSchedule"}, ""},
		"GKE, another effect":          {set{"node.gke.io/last-applied-node-taints": "gpu:NoExecute"}, ""},
		"GKE, a person has removed it": {set{"node.gke.io/last-applied-node-labels": "absent=a,zone=a", "node.gke.io/last-applied-node-taints": "gpu:NoExecute,gpu:NoSchedule"}, "taint:gpu:NoSchedule,zone"},
		"GKE, none":                    {set{"node.gke.io/last-applied-node-labels": "", "node.gke.io/last-applied-node-taints": ""}, ""},
		"Gardener": {
			set{"node.machine.sapcloud.io/last-applied-anno-labels-taints": `{"metadata":{"creationTimestamp":null,"labels":{"rack":"r1"},"annotations":{"owner":"x"}},"spec":{"taints":[{"key":"gpu"}]}}`},
			"annotation:owner,rack,taint:gpu:NoSchedule",
		},
		"Deckhouse": {
			set{"node-manager.deckhouse.io/last-applied-node-template": `{"annotations":{"owner":"x"},"labels":{"rack":"r1","node-role.kubernetes.io/gpu":""},"taints":[{"effect":"NoSchedule","key":"gpu"}]}`},
			"annotation:owner,rack,taint:gpu:NoSchedule",
		},
		"Deckhouse, later": {set{"node.deckhouse.io/last-applied-node-template": `{"annotations":{},"labels":{"zone":"a"},"taints":[]}`}, "zone"},
		"Hetzner":          {set{"ccm.hetzner.com/last-applied-labels": `{"zone":"a","absent":""}`}, "zone"},
		"unreadable":       {set{"talos.dev/owned-labels": `["zone"`, "node.machine.sapcloud.io/last-applied-anno-labels-taints": "zone", "ccm.hetzner.com/last-applied-labels": "[]"}, "annotation:talos.dev/owned-labels"},
		"no such key":      {set{"talos.dev/owned-labels": `["rack,zone",":"]`}, "annotation:talos.dev/owned-labels"},
		"another one's":    {set{"example.com/owned-labels": "zone"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := noted(own, tc.annotations)
			o := parse(t, "kubelet").Of(&n.ObjectMeta)
			assert.Equal(t, tc.want, o.Machine)
			assert.NotContains(t, o.Unclear.Set(), "zone")
			assert.Empty(t, parse(t, "").Of(&n.ObjectMeta).Machine, "no agents, no controllers of theirs")
		})
	}
}

// TestSwitchesOfOperators are the operator's unless a person has turned a program off, whoever owns
// them.
func TestSwitchesOfOperators(t *testing.T) {
	for label, want := range map[[2]string]bool{
		{"nvidia.com/gpu.deploy.device-plugin", "true"}:                      true,
		{"nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade"}: true,
		{"nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change"}:     true,
		{"rebellions.ai/npu.deploy.smd", "paused-for-driver-upgrade"}:        true,
		{"nvidia.com/gpu.deploy.device-plugin", "false"}:                     false,
		{"nvidia.com/gpu.deploy.device-plugin", ""}:                          false,
		{"nvidia.com/gpu.workload.config", "true"}:                           false,
		{"example.com/deploy", "paused-for-driver-upgrade"}:                  false,
	} {
		t.Run(label[0]+"="+label[1], func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels:        set{label[0]: label[1]},
				ManagedFields: []metav1.ManagedFieldsEntry{entry("kubectl-label", `{"f:metadata":{"f:labels":{"f:`+label[0]+`":{}}}}`)},
			}}
			assert.Equal(t, want, parse(t, "kubelet").Of(&n.ObjectMeta).Machine.Set()[label[0]])
			assert.Empty(t, parse(t, "").Of(&n.ObjectMeta).Machine, "no agents, no operators of theirs")
		})
	}
}

func TestClaimsHoldIfManagedFieldsAreUnreadable(t *testing.T) {
	n := noted(set{"zone": "a", "rack": "r1"}, set{"talos.dev/owned-labels": `["zone"]`})
	n.ManagedFields = []metav1.ManagedFieldsEntry{entry("kubelet", `["f:labels"]`)}
	o := parse(t, "kubelet").Of(&n.ObjectMeta)
	assert.Equal(t, labels.Keys("zone"), o.Machine)
	assert.Equal(t, labels.Keys("rack"), o.Unclear)
}

// A controller that removes a label stops naming it. If it still names the label, someone else has
// removed it.
func TestControllerWithdrawsWhatItNoLongerClaims(t *testing.T) {
	state := func(own set, claimed string) *nodeview.Node {
		return nodeview.View{Agents: parse(t, "kubelet")}.OfMetadata(noted(own, set{"cluster.x-k8s.io/labels-from-machine": claimed}))
	}
	before := state(set{"zone": "a", "rack": "r1"}, "rack,zone")
	after := state(set{"rack": "r1"}, "rack")
	assert.Equal(t, labels.Keys("zone"), nodeview.Withdrawn(before, after))
	assert.Empty(t, nodeview.Removed(before, after))
	after = state(set{"rack": "r1"}, "rack,zone")
	assert.Empty(t, nodeview.Withdrawn(before, after))
	assert.Equal(t, labels.Keys("zone"), nodeview.Removed(before, after))
	after = state(set{"rack": "r1", "zone": "a"}, "rack")
	assert.Empty(t, nodeview.Withdrawn(before, after), "it is left to others")
}

// taintedNode is a Node with a taint of each effect of a key, written by a person as far as
// managedFields show.
func taintedNode(t *testing.T, key string, annotations set, effects ...corev1.TaintEffect) *nodeview.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: noted(nil, annotations).ObjectMeta}
	for _, effect := range effects {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
	preserved, err := nodeview.ParsePreserved("", key+","+key+":NoExecute")
	require.NoError(t, err)
	return nodeview.View{Agents: parse(t, "kubelet"), Preserved: preserved}.OfWhole(n, time.Now())
}

// A key can have a taint of each effect. Talos names the key alone, Cluster API and others the
// effect as well.
func TestControllerWithdrawsATaintByItsEffect(t *testing.T) {
	const (
		noSchedule, noExecute  = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
		talos, capi, deckhouse = "talos.dev/owned-taints", "cluster.x-k8s.io/taints-from-machine", "node.deckhouse.io/last-applied-node-template"
	)
	const soft, hard, both = labels.Keys("taint:gpu:NoSchedule"), labels.Keys("taint:gpu:NoExecute"), labels.Keys("taint:gpu:NoExecute,taint:gpu:NoSchedule")
	for name, tc := range map[string]struct {
		annotation, before, after           string
		left                                []corev1.TaintEffect
		machine, wantWithdrawn, wantRemoved labels.Keys
	}{
		"the key":                          {talos, `["gpu"]`, `[]`, nil, both, both, ""},
		"the key, still named":             {talos, `["gpu"]`, `["gpu"]`, nil, both, "", both},
		"one effect, still named":          {talos, `["gpu"]`, `["gpu"]`, []corev1.TaintEffect{noSchedule}, both, "", hard},
		"both effects":                     {capi, "gpu:NoExecute,gpu:NoSchedule", "", nil, both, both, ""},
		"one of two effects":               {capi, "gpu:NoExecute,gpu:NoSchedule", "gpu:NoSchedule", []corev1.TaintEffect{noSchedule}, both, hard, ""},
		"one of two, a person the other":   {capi, "gpu:NoExecute,gpu:NoSchedule", "gpu:NoSchedule", nil, both, hard, soft},
		"one effect, the other a person's": {capi, "gpu:NoSchedule", "", []corev1.TaintEffect{noExecute}, soft, soft, ""},
		"one effect of a template": {
			deckhouse, `{"taints":[{"key":"gpu","effect":"NoSchedule"},{"key":"gpu","effect":"NoExecute"}]}`, `{"taints":[{"key":"gpu","effect":"NoExecute"}]}`,
			[]corev1.TaintEffect{noExecute},
			both, soft, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := taintedNode(t, "gpu", set{tc.annotation: tc.before}, noSchedule, noExecute)
			after := taintedNode(t, "gpu", set{tc.annotation: tc.after}, tc.left...)
			assert.Equal(t, tc.machine, before.Machine)
			assert.Equal(t, tc.wantWithdrawn, nodeview.Withdrawn(before, after))
			assert.Equal(t, tc.wantRemoved, nodeview.Removed(before, after))
		})
	}
}

// GKE sets the labels of a pool only when the Node is registered, so a change or a removal since is
// a person's, although the annotation still names the label.
func TestPersonOverrulesANotedValue(t *testing.T) {
	state := func(own set) *nodeview.Node {
		return nodeview.View{Agents: parse(t, "kubelet")}.OfMetadata(noted(own, set{"node.gke.io/last-applied-node-labels": "rack=r1,zone=a"}))
	}
	before := state(set{"zone": "a", "rack": "r1"})
	require.Equal(t, labels.Keys("rack,zone"), before.Machine)
	changed := state(set{"zone": "b", "rack": "r1"})
	assert.Equal(t, labels.Keys("rack"), changed.Machine)
	assert.Empty(t, changed.Unclear, "a person has set it")
	assert.Empty(t, nodeview.Withdrawn(before, changed))
	removed := state(set{"rack": "r1"})
	assert.Equal(t, labels.Keys("rack"), removed.Machine)
	assert.Empty(t, nodeview.Withdrawn(before, removed))
	assert.Equal(t, labels.Keys("zone"), nodeview.Removed(before, removed))
}

// The same holds for a taint whose value a person changes, or that a person removes.
func TestPersonOverrulesANotedTaint(t *testing.T) {
	state := func(taints ...corev1.Taint) *nodeview.Node {
		n := &corev1.Node{ObjectMeta: noted(nil, set{"node.gke.io/last-applied-node-taints": "gpu=x:NoSchedule"}).ObjectMeta, Spec: corev1.NodeSpec{Taints: taints}}
		preserved, err := nodeview.ParsePreserved("", "gpu")
		require.NoError(t, err)
		return nodeview.View{Agents: parse(t, "kubelet"), Preserved: preserved}.OfWhole(n, time.Now())
	}
	const key = "taint:gpu:NoSchedule"
	before := state(corev1.Taint{Key: "gpu", Value: "x", Effect: corev1.TaintEffectNoSchedule})
	require.Equal(t, labels.Keys(key), before.Machine)
	for name, after := range map[string]*nodeview.Node{
		"changed": state(corev1.Taint{Key: "gpu", Value: "y", Effect: corev1.TaintEffectNoSchedule}),
		"removed": state(),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, after.Machine)
			assert.Empty(t, nodeview.Withdrawn(before, after))
			assert.Equal(t, labels.Keys(key), nodeview.Removed(before, after))
		})
	}
}
