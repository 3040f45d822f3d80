package nodeview_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

func parsePreserved(t *testing.T, annotations, taints string) nodeview.Preserved {
	t.Helper()
	b, err := nodeview.ParsePreserved(annotations, taints)
	require.NoError(t, err)
	return b
}

func TestTaintsArePreservedByKeyAndEffect(t *testing.T) {
	b := parsePreserved(t, "", "dedicated, example.com/*:NoExecute,*.example.com/*,both,both:NoExecute,soft:PreferNoSchedule")
	for taint, want := range map[string]bool{
		"dedicated:NoSchedule":          true,
		"dedicated:PreferNoSchedule":    true,
		"dedicated:NoExecute":           false,
		"example.com/a:NoExecute":       true,
		"example.com/a:NoSchedule":      false,
		"a.example.com/a:NoSchedule":    true,
		"a.example.com/a:NoExecute":     false,
		"both:NoSchedule":               true,
		"both:NoExecute":                true,
		"soft:PreferNoSchedule":         true,
		"soft:NoSchedule":               false,
		"other:NoSchedule":              false,
		"a.karpenter.sh/use:NoSchedule": false,
	} {
		key, effect, _ := strings.Cut(taint, ":")
		assert.Equal(t, want, b.Has(labels.TaintKey(key, effect)), taint)
	}
	assert.False(t, b.Has("dedicated"), "a label")
	assert.False(t, b.Has(labels.AnnotationKey("dedicated")))
	assert.True(t, b.NeedsSpec())
}

// TestStateIsNeverPreserved, whatever the patterns are.
func TestStateIsNeverPreserved(t *testing.T) {
	all := parsePreserved(t, "*", "*,*:NoExecute")
	for _, key := range []string{
		corev1.TaintNodeNotReady, corev1.TaintNodeUnschedulable, corev1.TaintNodeOutOfService, "node.cloudprovider.kubernetes.io/uninitialized",
		"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/x",
		"karpenter.sh/disrupted", "x.karpenter.sh/y", "node.cluster.x-k8s.io/uninitialized", "cloud.google.com/impending-node-termination",
		"node.cilium.io/agent-not-ready", "disk.csi.azure.com/agent-not-ready", "node.gardener.cloud/critical-components-not-ready", "nidhogg.uswitch.com/kube-system.fluentd",
		"readiness.k8s.io/network", "medik8s.io/remediation", "remediation.medik8s.io/x", "kubevirt.io/drain", "aws-node-termination-handler/spot-itn", "UpdateInProgress",
		"weave.works/kured-node-reboot", "kured.dev/kured-node-reboot", "node.deckhouse.io/uninitialized", "node.deckhouse.io/csi-not-bootstrapped", "drbd.linbit.com/lost-quorum",
		"sysbox-runtime",
	} {
		for _, effect := range []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} {
			assert.False(t, all.Has(labels.TaintKey(key, effect)), key)
		}
	}
	for _, key := range []string{
		"nodekeeper.dev/machine-labels", corev1.LastAppliedConfigAnnotation, "node.alpha.kubernetes.io/ttl", "csi.volume.kubernetes.io/nodeid",
		"volumes.kubernetes.io/controller-managed-attach-detach", "kubeadm.alpha.kubernetes.io/cri-socket", "karpenter.sh/nodepool-hash",
		"cluster-autoscaler.kubernetes.io/x", "compatibility.karpenter.sh/provider", "karpenter.sh/managed-by",
		"machineconfiguration.openshift.io/currentConfig", "machine.openshift.io/machine", "cluster.x-k8s.io/machine", "cluster.x-k8s.io/owner-name",
		"cluster.x-k8s.io/cluster-name", "etcd.k3s.cattle.io/remove", "harvesterhci.io/drain-requested", "harvesterhci.io/maintain-status", "etcd.rke2.cattle.io/node-name", "weave.works/kured-reboot-in-progress", "kured.dev/kured-reboot-in-progress", "readiness.k8s.io/bootstrap-completed-cni",
		"flatcar-linux-update.v1.flatcar-linux.net/reboot-ok", "example.com/reboot-required",
		"sriovnetwork.openshift.io/state",
		"ovn.kubernetes.io/allocated", "ovn.kubernetes.io/chassis", "ovn.kubernetes.io/cidr", "ovn.kubernetes.io/gateway", "ovn.kubernetes.io/ip_address",
		"ovn.kubernetes.io/logical_switch", "ovn.kubernetes.io/mac_address", "ovn.kubernetes.io/port_name",
	} {
		assert.False(t, all.Has(labels.AnnotationKey(key)), key)
	}
	assert.True(t, all.Has(labels.AnnotationKey("example.com/owner")))
	assert.True(t, all.Has(labels.AnnotationKey("ovn.kubernetes.io/tunnel_interface")), "people choose the interface")
	assert.True(t, all.Has(labels.TaintKey("dedicated", "NoExecute")))
}

// People protect a node from an autoscaler by annotations.
func TestAnnotationsForAutoscalersArePreservedByName(t *testing.T) {
	for _, key := range []string{
		"cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-consolidate",
		"example.cluster-autoscaler.kubernetes.io/x", "example.karpenter.sh/x",
	} {
		kept := labels.AnnotationKey(key)
		assert.True(t, parsePreserved(t, "example.com/*, "+key, "").Has(kept), key)
		assert.False(t, parsePreserved(t, "*", "").Has(kept), "a pattern does not select %s", key)
		assert.False(t, parsePreserved(t, key+"-also", "").Has(kept), key)
	}
	all := parsePreserved(t, "*,karpenter.sh/do-not-disrupt", "")
	assert.True(t, all.Has(labels.AnnotationKey("karpenter.sh/do-not-disrupt")))
	assert.False(t, all.Has(labels.AnnotationKey("karpenter.sh/nodepool-hash")))
}

func TestBadPatterns(t *testing.T) {
	for _, tc := range []struct{ annotations, taints, want string }{
		{annotations: "a*b", want: "--preserve-annotations: unreadable pattern"},
		{annotations: "a, karpenter.sh/nodepool-hash", want: `--preserve-annotations: "karpenter.sh/nodepool-hash" records the state of the machine`},
		{annotations: "karpenter.sh/nodepool-*", want: "is never preserved: leave it out"},
		{annotations: "karpenter.sh/do-not-disrupt,karpenter.sh/*", want: `"karpenter.sh/*" includes what an autoscaler records: name each annotation`},
		{annotations: "karpenter.sh/do-*", want: "name each annotation"},
		{annotations: "*.karpenter.sh/*", want: "name each annotation"},
		{annotations: "cluster-autoscaler.kubernetes.io/*", want: "name each annotation"},
		{annotations: "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm", want: "is never preserved: leave it out"},
		{taints: "a*b:NoSchedule", want: "--preserve-taints: unreadable pattern"},
		{taints: "a:Never", want: `--preserve-taints: unknown effect "Never" of "a:Never": use NoSchedule, `},
		{taints: ":NoSchedule", want: "has no key"},
		{taints: "node.kubernetes.io/unschedulable", want: "never preserved: leave it out"},
		{taints: "node.kubernetes.io/*:NoExecute", want: "never preserved: leave it out"},
	} {
		_, err := nodeview.ParsePreserved(tc.annotations, tc.taints)
		assert.ErrorContains(t, err, tc.want)
	}
}

func TestZeroPreservedKeepsOnlyLabels(t *testing.T) {
	for _, none := range []nodeview.Preserved{{}, parsePreserved(t, "", ""), parsePreserved(t, " , ", " , ")} {
		view := nodeview.View{Preserved: none}
		n := view.OfWhole(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: set{"rack": "r1"}, Annotations: set{"a": "b"}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}},
		}, time.Now())
		assert.Equal(t, set{"rack": "r1"}, n.Labels)
		assert.False(t, none.NeedsSpec())
	}
}

func TestTaintsAreKnownOnlyOfWholeNodes(t *testing.T) {
	view := nodeview.View{Preserved: parsePreserved(t, "example.com/*", "dedicated")}
	meta := metav1.ObjectMeta{Name: "node-1", Annotations: set{"example.com/owner": "a"}}
	n := view.OfMetadata(&metav1.PartialObjectMetadata{ObjectMeta: *meta.DeepCopy()})
	assert.Equal(t, set{labels.AnnotationKey("example.com/owner"): "a"}, n.Labels)
	assert.False(t, n.IsWhole)

	taints := []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}, nodeview.StartupTaint()}
	n = view.OfWhole(&corev1.Node{ObjectMeta: *meta.DeepCopy(), Spec: corev1.NodeSpec{Taints: taints}}, time.Now())
	assert.Equal(t, set{labels.AnnotationKey("example.com/owner"): "a", labels.TaintKey("dedicated", "NoSchedule"): "gpu"}, n.Labels)
	assert.True(t, n.IsWhole)
	assert.Equal(t, taints, n.Taints)
	assert.True(t, n.Gated)

	n.Compact()
	assert.False(t, n.IsWhole, "a cache does not keep them")
	assert.Nil(t, n.Taints)
}
