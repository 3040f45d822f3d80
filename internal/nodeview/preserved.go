package nodeview

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
)

// Preserved selects the annotations and taints of a Node that are preserved besides its labels. The
// zero value selects none. It is immutable and safe for concurrent use.
type Preserved struct {
	annotations labels.Patterns
	named       labels.Patterns // those that match AnnotationsByName
	taints      []taintPattern
	hasAny      bool
}

// taintPattern selects taints by their key and effect.
type taintPattern struct {
	keys   labels.Patterns
	effect corev1.TaintEffect // "": NoSchedule and PreferNoSchedule
}

// NeverAnnotations are set by programs to record their state, not by users. Keep the expression in
// deploy/components/preserve-annotations in step with this list.
var NeverAnnotations = []string{
	"nodekeeper.dev/*",
	corev1.LastAppliedConfigAnnotation,
	"node.alpha.kubernetes.io/ttl",
	"volumes.kubernetes.io/controller-managed-attach-detach",
	"csi.volume.kubernetes.io/nodeid",
	"kubeadm.alpha.kubernetes.io/cri-socket",
	// Gardener's machine-controller-manager, about its own scale-down-disabled:
	// https://github.com/gardener/machine-controller-manager/blob/master/pkg/controller/autoscaler/autoscaler.go
	"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm",
	// https://github.com/kubernetes-sigs/karpenter/blob/main/pkg/apis/v1/labels.go and its former
	// releases:
	"karpenter.sh/managed-by",
	"karpenter.sh/node-termination-time",
	"karpenter.sh/nodeclaim-*",
	"karpenter.sh/nodepool-*",
	"karpenter.sh/provisioner-*",
	"compatibility.karpenter.sh/*",
	// The Machine behind the Node, and the configuration that was installed on it: OpenShift and
	// Cluster API.
	"machineconfiguration.openshift.io/*",
	"machine.openshift.io/machine",
	"cluster.x-k8s.io/machine",
	"cluster.x-k8s.io/owner-*",
	"cluster.x-k8s.io/cluster-*",
	// The member of etcd on the machine, and the order to remove it: https://github.com/k3s-io/k3s.
	"etcd.k3s.cattle.io/*",
	"etcd.rke2.cattle.io/*",
	// A maintenance that Harvester was asked for, or has begun: https://github.com/harvester/harvester.
	"harvesterhci.io/drain-*",
	"harvesterhci.io/maintain-*",
	// Whether the SR-IOV Network Operator drains the machine:
	// https://github.com/k8snetworkplumbingwg/sriov-network-operator.
	"sriovnetwork.openshift.io/*",
	// The Node Readiness Controller's note that a machine has started, so that it sets no taint:
	// https://github.com/kubernetes-sigs/node-readiness-controller.
	"readiness.k8s.io/*",
	// The chassis of the machine in the network of Kube-OVN, which kube-ovn-daemon notes.
	"ovn.kubernetes.io/chassis",
	// The port and address of the machine in the network of Kube-OVN, which kube-ovn-controller notes.
	// After a restore it would ask for the former address, which may be another node's by now
	// (handleAddNode): https://github.com/kubeovn/kube-ovn/blob/master/pkg/controller/node.go.
	"ovn.kubernetes.io/allocated",
	"ovn.kubernetes.io/cidr",
	"ovn.kubernetes.io/gateway",
	"ovn.kubernetes.io/ip_address",
	"ovn.kubernetes.io/logical_switch",
	"ovn.kubernetes.io/mac_address",
	"ovn.kubernetes.io/port_name",
	// A reboot that is due or under way, for example by kured and the update operator of Flatcar.
	"weave.works/kured-*",
	"kured.dev/*",
	"*/reboot-needed",
	"*/reboot-pending",
	"*/reboot-required",
	"*/reboot-ok",
	"*/reboot-in-progress",
}

// AnnotationsByName are mostly the state of autoscalers, but people set some of them on Nodes. So
// they are preserved if their full key is given, and no pattern selects them:
//   - cluster-autoscaler.kubernetes.io/scale-down-disabled
//     (https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md)
//   - karpenter.sh/do-not-disrupt (https://karpenter.sh/docs/concepts/disruption/), formerly
//     karpenter.sh/do-not-consolidate (https://github.com/kubernetes-sigs/karpenter/pull/87)
var AnnotationsByName = []string{
	"cluster-autoscaler.kubernetes.io/*",
	"*.cluster-autoscaler.kubernetes.io/*",
	"karpenter.sh/*",
	"*.karpenter.sh/*",
}

// NeverTaints describe conditions of the machine, mark it for removal, keep pods away until a
// program is ready on it, or are nodekeeper's own. node.kubernetes.io includes the taint of a
// cordon. Keep the expression in deploy/components/preserve-taints in step with this list.
var NeverTaints = []string{
	"node.kubernetes.io/*",
	"node.cloudprovider.kubernetes.io/*",
	"node.cluster.x-k8s.io/*",
	"ToBeDeletedByClusterAutoscaler",
	"DeletionCandidateOfClusterAutoscaler",
	"cluster-autoscaler.kubernetes.io/*",
	"*.cluster-autoscaler.kubernetes.io/*",
	"karpenter.sh/*",
	"*.karpenter.sh/*",
	"cloud.google.com/impending-node-termination",
	"nodekeeper.dev/*",
	// A program removes them when it is ready on the machine, which is no person's removal: Cilium,
	// CSI drivers, cloud controllers, Deckhouse, Gardener, Nidhogg, the Node Readiness Controller,
	// Sysbox.
	"*/agent-not-ready",
	"*/uninitialized",
	"node.deckhouse.io/csi-not-bootstrapped",
	"node.gardener.cloud/critical-components-not-ready",
	"nidhogg.uswitch.com/*",
	"readiness.k8s.io/*",
	"sysbox-runtime",
	// Repairs, drains and reboots: medik8s, KubeVirt, AWS Node Termination Handler, OpenShift's
	// Machine Config Operator, kured; and lost storage of LINSTOR.
	"medik8s.io/*",
	"*.medik8s.io/*",
	"kubevirt.io/drain",
	"aws-node-termination-handler/*",
	"UpdateInProgress",
	"weave.works/kured-*",
	"kured.dev/*",
	"drbd.linbit.com/*",
}

var neverAnnotations, annotationsByName, neverTaints = mustParse(NeverAnnotations), mustParse(AnnotationsByName), mustParse(NeverTaints)

func mustParse(list []string) labels.Patterns {
	patterns, err := labels.ParsePatterns(strings.Join(list, ","))
	if err != nil {
		panic(err) // a constant
	}
	return patterns
}

// effects are the valid effects of taints.
var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// ParsePreserved parses the flags --preserve-annotations and --preserve-taints. Errors name the
// flag.
func ParsePreserved(annotations, taints string) (Preserved, error) {
	var b Preserved
	if annotations == "" && taints == "" {
		return b, nil
	}
	if err := b.parseAnnotations(annotations); err != nil {
		return Preserved{}, fmt.Errorf("--preserve-annotations: %w", err)
	}
	for item := range items(taints) {
		pattern, err := parseTaint(item)
		if err != nil {
			return Preserved{}, fmt.Errorf("--preserve-taints: %w", err)
		}
		b.taints, b.hasAny = append(b.taints, pattern), true
	}
	return b, nil
}

func (b *Preserved) parseAnnotations(list string) (err error) {
	if b.annotations, err = labels.ParsePatterns(list); err != nil {
		return err
	}
	var named []string
	for item := range items(list) {
		byName := annotationsByName.Match(item)
		switch {
		case neverAnnotations.Match(item):
			return fmt.Errorf("%q records the state of the machine or of another program and is never preserved: leave it out", item)
		case byName && strings.Contains(item, "*"):
			return fmt.Errorf("%q includes what an autoscaler records: name each annotation that you set yourself, such as karpenter.sh/do-not-disrupt", item)
		case byName:
			named = append(named, item)
		}
		b.hasAny = true
	}
	b.named, err = labels.ParsePatterns(strings.Join(named, ","))
	return err
}

// items returns the trimmed, non-empty items of a comma-separated list.
func items(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item != "" && !yield(item) {
				return
			}
		}
	}
}

func parseTaint(item string) (taintPattern, error) {
	key, effect, hasEffect := strings.Cut(item, ":")
	if hasEffect && !slices.Contains(effects, corev1.TaintEffect(effect)) {
		return taintPattern{}, fmt.Errorf("unknown effect %q of %q: use NoSchedule, PreferNoSchedule or NoExecute", effect, item)
	}
	if key == "" {
		return taintPattern{}, fmt.Errorf("%q has no key: use KEY or KEY:EFFECT", item)
	}
	if neverTaints.Match(key) {
		return taintPattern{}, fmt.Errorf("%q is a condition of the machine, set by Kubernetes or another program, and is never preserved: leave it out", item)
	}
	keys, err := labels.ParsePatterns(key)
	return taintPattern{keys, corev1.TaintEffect(effect)}, err
}

// NeedsSpec reports whether any taints are preserved. The metadata of a Node does not contain them.
func (b Preserved) NeedsSpec() bool { return len(b.taints) > 0 }

// Has reports whether the annotation or taint with this key is preserved, see
// [labels.AnnotationKey] and [labels.TaintKey]. It is false for labels.
func (b Preserved) Has(key string) bool {
	if annotation, ok := labels.AsAnnotation(key); ok {
		return b.hasAnnotation(annotation)
	}
	taint, effect, ok := labels.AsTaint(key)
	return ok && b.hasTaint(taint, corev1.TaintEffect(effect))
}

func (b Preserved) hasAnnotation(key string) bool {
	if neverAnnotations.Match(key) {
		return false
	}
	if annotationsByName.Match(key) {
		return b.named.Match(key)
	}
	return b.annotations.Match(key)
}

func (b Preserved) hasTaint(key string, effect corev1.TaintEffect) bool {
	return !neverTaints.Match(key) && slices.ContainsFunc(b.taints, func(p taintPattern) bool {
		return p.keys.Match(key) && (p.effect == effect || p.effect == "" && (effect == corev1.TaintEffectNoSchedule || effect == corev1.TaintEffectPreferNoSchedule))
	})
}

// addTo adds the preserved annotations and taints of a Node to its labels. It allocates the map if
// it is nil.
func (b Preserved) addTo(own, annotations map[string]string, taints []corev1.Taint) map[string]string {
	if !b.hasAny {
		return own
	}
	if own == nil {
		own = map[string]string{}
	}
	for key, value := range annotations {
		if kept := labels.AnnotationKey(key); b.Has(kept) {
			own[kept] = value
		}
	}
	for _, taint := range taints {
		if b.hasTaint(taint.Key, taint.Effect) {
			own[labels.TaintKey(taint.Key, string(taint.Effect))] = taint.Value
		}
	}
	return own
}
