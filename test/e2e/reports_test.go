package e2e_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

const (
	// controlPlane is a restricted label that kubeadm sets once.
	controlPlane = "node-role.kubernetes.io/control-plane"
	// deployed is the prefix of the labels that turn the programs of the GPU operator on a machine on
	// and off, and paused is one of their values.
	deployed, paused = "nvidia.com/gpu.deploy.", "paused-for-driver-upgrade"
)

// arrival is what a Node is created with. The zero manager is the kubelet.
type arrival struct {
	manager, providerID, systemUUID string
	labels, annotations             map[string]string
	taints                          []corev1.Taint
}

// edit is what a program or a person sets on a Node after its creation.
type edit struct {
	manager             string
	labels, annotations map[string]string
	removed             string         // the key of a label, unless empty
	taints              []corev1.Taint // replace the others, unless nil
}

// report is a case of docs/explanation/reports.md: a Node comes, is edited, is deleted and returns.
type report struct {
	first, second arrival
	edits         []edit
	// want are the labels of the returned Node, except the one that every node of these tests has.
	want labelSet
	// annotations and taints are those of the returned Node, only for tests that preserve them.
	annotations map[string]string
	taints      []corev1.Taint
}

// reports are the cases that the programs decide with their default flags.
var reports = map[string]report{
	"openshift/origin#19899: an instance is stopped and started": {
		first:  arrival{systemUUID: "a", labels: labelSet{"region": "primary"}},
		edits:  []edit{{manager: "oc-label", labels: labelSet{"logging-infra-fluentd": "true", "node-role.kubernetes.io/compute": "true"}}},
		second: arrival{systemUUID: "a", labels: labelSet{"region": "primary"}},
		want:   labelSet{"region": "primary", "logging-infra-fluentd": "true", "node-role.kubernetes.io/compute": "true"},
	},
	"kubernetes/kubernetes#84247: a kernel prints the UUID in lower case": {
		first:  arrival{systemUUID: "4228E784-3F9E-998E-311B-29A25AD112D3"},
		edits:  []edit{{manager: "kubectl-label", labels: labelSet{worker: ""}}},
		second: arrival{systemUUID: "4228e784-3f9e-998e-311b-29a25ad112d3"},
		want:   labelSet{worker: ""},
	},
	"charmed-kubernetes/charm-kubernetes-control-plane#102: new virtual hardware swaps bytes of the UUID": {
		first:  arrival{systemUUID: "422813f5-d420-7161-5db0-7b96440ccf54"},
		edits:  []edit{{manager: "kubectl-label", labels: labelSet{worker: ""}}},
		second: arrival{systemUUID: "F5132842-20D4-6171-5DB0-7B96440CCF54"},
		want:   labelSet{worker: ""},
	},
	"kube-vip/kube-vip#753: another node has the virtual address by now": {
		edits: []edit{{manager: "kube-vip", labels: labelSet{"kube-vip.io/has-ip": "192.0.2.51"}}},
		want:  labelSet{},
	},
	"doitintl/kubeip#154: a restarted node loses its label": {
		edits: []edit{
			{manager: "kubectl-label", labels: labelSet{"kubeip.com/public": "true"}},
			{manager: "kubeip", labels: labelSet{"kubip_assigned": "192-0-2-7"}},
		},
		want: labelSet{"kubeip.com/public": "true"},
	},
	"NVIDIA/gpu-operator#316: the programs of a GPU stay paused": {
		first: arrival{labels: labelSet{"kubernetes.io/os": "linux"}},
		edits: []edit{
			{manager: "gpu-operator", labels: labelSet{deployed + "dcgm": "true", deployed + "device-plugin": "true", deployed + "operator-validator": "true"}},
			{manager: "kubectl-label", labels: labelSet{deployed + "dcgm": "false", deployed + "device-plugin": paused, deployed + "operator-validator": paused}},
			{manager: "kubectl-label", labels: labelSet{deployed + "operator-validator": "true"}},
		},
		second: arrival{labels: labelSet{"kubernetes.io/os": "linux"}},
		want:   labelSet{"kubernetes.io/os": "linux", deployed + "dcgm": "false"},
	},
	"NVIDIA/gpu-operator#873: a node with MIG is installed again": {
		edits: []edit{
			{manager: "gpu-operator", labels: labelSet{deployed + "mig-manager": "true", "nvidia.com/mig.config": "all-disabled"}},
			{manager: "kubectl-label", labels: labelSet{"nvidia.com/mig.config": "all-1g.10gb"}},
			{manager: "nvidia-mig-manager", labels: labelSet{"nvidia.com/mig.config.state": "success"}},
		},
		want: labelSet{"nvidia.com/mig.config": "all-1g.10gb"},
	},
	"virtual-kubelet/virtual-kubelet#1143: a virtual node creates itself again": {
		first:  arrival{manager: "virtual-kubelet", labels: labelSet{"type": "virtual-kubelet", "example.com/capacity": "small"}},
		second: arrival{manager: "virtual-kubelet", labels: labelSet{"type": "virtual-kubelet", "example.com/capacity": "large"}},
		want:   labelSet{"type": "virtual-kubelet", "example.com/capacity": "large"},
	},
	"kubernetes-sigs/azuredisk-csi-driver#1175: a driver finds the zone of the former machine": {
		edits: []edit{{manager: "kubelet", labels: labelSet{"topology.disk.csi.azure.com/zone": "eastus2-1"}}},
		want:  labelSet{},
	},
	"kubernetes/kubernetes#28051: a kubelet gets other --node-labels": {
		first:  arrival{labels: labelSet{"tier": "bronze", "example.com/rows": "1"}},
		second: arrival{labels: labelSet{"tier": "silver"}},
		want:   labelSet{"tier": "silver"},
	},
	"longhorn/longhorn#8308: a node that must not get a disk": {
		edits: []edit{{manager: "kubectl-label", labels: labelSet{"node.longhorn.io/create-default-disk": "false"}}},
		want:  labelSet{"node.longhorn.io/create-default-disk": "false"},
	},
	"deckhouse/deckhouse#17678: a machine moves to another group": {
		edits: []edit{
			{manager: "deckhouse-hook", labels: labelSet{"node.deckhouse.io/gpu": ""}},
			{manager: "node-controller", labels: labelSet{"example.com/pool": "gpu"}, annotations: map[string]string{
				"node-manager.deckhouse.io/last-applied-node-template": `{"annotations":{},"labels":{"example.com/pool":"gpu"},"taints":[]}`,
			}},
		},
		want: labelSet{},
	},
	"openshift/machine-config-operator#2293: a node for infrastructure is no worker": {
		first: arrival{systemUUID: "a", labels: labelSet{worker: ""}},
		edits: []edit{
			{manager: "oc-label", labels: labelSet{"node-role.kubernetes.io/infra": ""}, removed: worker},
		},
		second: arrival{systemUUID: "a", labels: labelSet{worker: ""}},
		want:   labelSet{"node-role.kubernetes.io/infra": ""},
	},
	"kubernetes/kubernetes#90359: a node joins again with another value": {
		edits:  []edit{{manager: "kubectl-label", labels: labelSet{"disk": "minio2"}}},
		second: arrival{labels: labelSet{"disk": "minio3"}},
		want:   labelSet{"disk": "minio2"}, // a person's value wins
	},
	"kubernetes-sigs/cluster-api#12251: a control plane node loses its role": {
		first:  arrival{systemUUID: "a"},
		edits:  []edit{{manager: "kubeadm", labels: labelSet{controlPlane: "", excluded: ""}}},
		second: arrival{systemUUID: "a"},
		want:   labelSet{controlPlane: "", excluded: ""},
	},
}

// TestReports tries what people have reported about other tools.
func TestReports(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	lives := map[string]func(e *env, name string){
		"kubernetes/kubernetes#71398: a replaced machine takes a Node that was not deleted": (*env).takeOver,
		"metal3-io/cluster-api-provider-metal3#668: a remediation restores labels, too":     (*env).remediate,
	}
	for title, tc := range reports {
		lives[title] = func(e *env, name string) { e.try(name, tc) }
	}
	e.inParallel(lives)
}

// inParallel runs the parts of a test, each with a node of its own. They share the programs.
func (e *env) inParallel(parts map[string]func(e *env, name string)) {
	for title := range parts {
		e.nodes[e.nodeOf(title)] = true
	}
	for title, do := range parts {
		e.t.Run(title, func(t *testing.T) {
			t.Parallel()
			part := *e
			part.t, part.nodes = t, maps.Clone(e.nodes)
			do(&part, e.nodeOf(title))
		})
	}
}

// nodeOf returns the name of the node of a part of a test.
func (e *env) nodeOf(title string) string { return e.name(txn.NodeHash(title)[:8]) }

// takeOver lets a machine register while the Node of the former one is still there, so that it has
// the former one's labels until the Node is deleted.
func (e *env) takeOver(name string) {
	first := e.register(name, "", "a")
	e.applied(e.editAs("kubectl-label", name, labelSet{"rack": "r1", worker: ""}))
	e.identify(name, "b")
	e.replace(first)
	second := e.register(name, "", "b")
	e.restored(name, labelSet{"rack": "r1"})
	e.warned(second.UID, "RestrictedLabelsWithheld")
}

// remediate lets a controller delete the Node of a broken machine and set its former labels again,
// nodekeeper's marker among them.
func (e *env) remediate(name string) {
	n := e.arrive(name, arrival{labels: labelSet{"pool": "a"}})
	e.applied(e.editAs("kubectl-label", name, labelSet{"rack": "r1"}))
	for _, rack := range []string{"r2", "r3"} {
		backup := edit{manager: "manager", labels: e.node(e.t, name).Labels}
		e.replace(n)
		n = e.arrive(name, arrival{labels: labelSet{"pool": "a"}})
		e.apply(name, backup)
		e.restored(name, labelSet{"pool": "a", "rack": backup.labels["rack"]})
		e.applied(e.editAs("kubectl-label", name, labelSet{"rack": rack}))
		e.restored(name, labelSet{"pool": "a", "rack": rack})
	}
	e.replace(n)
	e.arrive(name, arrival{labels: labelSet{"pool": "b"}})
	e.restored(name, labelSet{"pool": "b", "rack": "r3"})
}

// try lets a Node come, be edited, be deleted and return.
func (e *env) try(name string, r report) {
	e.t.Helper()
	first := e.arrive(name, r.first)
	for _, edit := range r.edits {
		e.apply(name, edit)
	}
	e.applied(e.editAs("kubectl-label", name, labelSet{"rack": "r1"}))
	e.replace(first)
	e.arrive(name, r.second)
	e.restored(name, union(r.want, labelSet{"rack": "r1"}))
}

// arrive creates a Node.
func (e *env) arrive(name string, a arrival) *corev1.Node {
	e.t.Helper()
	if a.manager == "" {
		a.manager = "kubelet"
	}
	n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true, ProviderID: a.providerID, Taints: a.taints}}
	n.Name, n.Labels, n.Annotations, n.Status.NodeInfo.SystemUUID = name, maps.Clone(a.labels), maps.Clone(a.annotations), a.systemUUID
	require.NoError(e.t, e.client.Create(e.t.Context(), n, client.FieldOwner(a.manager)))
	return n
}

// apply changes a Node as a program does that updates the whole of it.
func (e *env) apply(name string, change edit) {
	e.t.Helper()
	n := e.node(e.t, name)
	before := n.DeepCopy()
	n.Labels, n.Annotations = union(n.Labels, change.labels), union(n.Annotations, change.annotations)
	delete(n.Labels, change.removed)
	if change.taints != nil {
		n.Spec.Taints = change.taints
	}
	require.NoError(e.t, e.client.Patch(e.t.Context(), n, client.MergeFrom(before), client.FieldOwner(change.manager)))
}
