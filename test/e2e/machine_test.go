package e2e_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// machine holds the labels that the agents of one machine set.
type machine struct {
	registered labelSet // by its kubelet, on registration of the Node
	later      labelSet // by another agent
}

// sources are the examples of docs/explanation/labels.md: labels with values of real clusters, of a
// node and of the machine that takes over its name.
var sources = map[string]struct {
	kubelet, agent string // field managers
	first, second  machine
}{
	"EKS managed node groups": {
		kubelet: "kubelet", agent: "aws-cloud-controller-manager",
		first: machine{
			labelSet{
				"eks.amazonaws.com/nodegroup": "batch-2024", "eks.amazonaws.com/capacityType": "ON_DEMAND",
				"eks.amazonaws.com/nodegroup-image": "ami-0d02aa4e6c1a7f2b1", "alpha.eksctl.io/nodegroup-name": "batch",
			},
			labelSet{"topology.k8s.aws/zone-id": "use1-az5", "k8s.io/cloud-provider-aws": "d573a2d478e0c5b3d7b1e6a2c84f9e10"},
		},
		second: machine{
			labelSet{
				"eks.amazonaws.com/nodegroup": "batch-2026", "eks.amazonaws.com/capacityType": "SPOT",
				"eks.amazonaws.com/nodegroup-image": "ami-0f7b3c9d2e4a5b6c7", "eks.amazonaws.com/sourceLaunchTemplateVersion": "2",
			},
			labelSet{"topology.k8s.aws/zone-id": "use1-az2"},
		},
	},
	"GKE": {
		kubelet: "kubelet", agent: "gcp-controller-manager",
		first: machine{
			labelSet{"cloud.google.com/gke-nodepool": "default-pool", "cloud.google.com/gke-boot-disk": "pd-balanced", "cloud.google.com/machine-family": "e2"},
			labelSet{"cloud.google.com/gke-os-distribution": "cos"},
		},
		second: machine{
			labelSet{"cloud.google.com/gke-nodepool": "pool-2", "cloud.google.com/gke-boot-disk": "pd-ssd", "cloud.google.com/machine-family": "n2"},
			labelSet{"cloud.google.com/gke-container-runtime": "containerd"},
		},
	},
	"AKS": {
		kubelet: "kubelet", agent: "cloud-node-manager",
		first: machine{
			labelSet{
				"agentpool": "nodepool1", "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202401.09.0",
				"kubernetes.azure.com/mode": "system", "storageprofile": "managed", "storagetier": "Premium_LRS",
			},
			labelSet{"topology.kubernetes.azure.com/sub-fault-domain": "0"},
		},
		second: machine{
			labelSet{
				"agentpool": "nodepool2", "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202610.15.0",
				"kubernetes.azure.com/mode": "user",
			},
			labelSet{"topology.kubernetes.azure.com/sub-fault-domain": "3"},
		},
	},
	"Karpenter": {
		kubelet: "kubelet", agent: "karpenter",
		first: machine{
			labelSet{"karpenter.sh/capacity-type": "on-demand"},
			labelSet{
				"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
				"karpenter.k8s.aws/instance-family": "c5a", "karpenter.k8s.aws/instance-size": "2xlarge",
			},
		},
		second: machine{
			labelSet{"karpenter.sh/capacity-type": "spot"},
			labelSet{"karpenter.sh/nodepool": "spot", "karpenter.sh/registered": "true", "karpenter.k8s.aws/instance-family": "m7g"},
		},
	},
	"Cluster API": { // its manager has the default name of every program made with kubebuilder, so its labels are kept like labels of people
		kubelet: "kubelet", agent: "",
		first:  machine{registered: labelSet{"node.cluster.x-k8s.io/image": "ubuntu-2204-kube-v1.35.1"}},
		second: machine{registered: labelSet{"node.cluster.x-k8s.io/image": "ubuntu-2404-kube-v1.36.0"}},
	},
	"kOps": {
		kubelet: "kubelet", agent: "kops-controller",
		first:  machine{labelSet{"topology.ebs.csi.aws.com/zone": "us-east-1f"}, labelSet{"kops.k8s.io/instancegroup": "nodes-us-east-1f", "node-role.kubernetes.io/node": ""}},
		second: machine{labelSet{"topology.ebs.csi.aws.com/zone": "us-east-1a"}, labelSet{"kops.k8s.io/instancegroup": "nodes-us-east-1a", "node-role.kubernetes.io/node": ""}},
	},
	"k3s": {
		kubelet: "k3s", agent: "k3s",
		first:  machine{labelSet{"node.kubernetes.io/instance-type": "k3s", "egress.k3s.io/cluster": "true", "p2p.k3s.cattle.io/enabled": "true"}, nil},
		second: machine{labelSet{"node.kubernetes.io/instance-type": "k3s", "egress.k3s.io/cluster": "false"}, nil},
	},
	"Node Feature Discovery": {
		kubelet: "kubelet", agent: "nfd-master",
		first:  machine{later: labelSet{"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/kernel-version.full": "5.15.0-91-generic"}},
		second: machine{later: labelSet{"feature.node.kubernetes.io/kernel-version.full": "6.8.0-47-generic"}},
	},
	"NVIDIA GPU operator": {
		kubelet: "kubelet", agent: "gpu-operator",
		first:  machine{later: labelSet{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true", "nvidia.com/mig.config": "all-disabled"}},
		second: machine{},
	},
	"cloud controller managers": {
		kubelet: "kubelet", agent: "openstack-cloud-controller-manager",
		first:  machine{labelSet{"kubernetes.io/os": "linux"}, labelSet{"topology.cinder.csi.openstack.org/zone": "nova", "node.openstack.org/flavor": "m1.large"}},
		second: machine{labelSet{"kubernetes.io/os": "linux"}, labelSet{"node.openstack.org/flavor": "m1.xlarge"}},
	},
}

// people are labels that a user sets with kubectl.
var people = labelSet{"rack": "r7", "example.com/team": "blue", "node-role.kubernetes.io/gpu": ""}

// createAs creates a Node with a field manager.
func (e *env) createAs(manager, name string, own labelSet) *corev1.Node {
	e.t.Helper()
	e.nodes[name] = true
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(own)}, Spec: corev1.NodeSpec{Unschedulable: true},
	}
	require.NoError(e.t, e.client.Create(e.t.Context(), node, client.FieldOwner(manager)))
	return node
}

// editAs changes labels of a node with a field manager, and returns the updated Node.
func (e *env) editAs(manager, name string, own labelSet) *corev1.Node {
	e.t.Helper()
	if len(own) == 0 {
		return e.node(e.t, name)
	}
	changes := map[string]*string{}
	for key, value := range own {
		changes[key] = &value
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(e.t, e.client.Patch(e.t.Context(), node, mergeLabels(e.t, changes), client.FieldOwner(manager)))
	return node
}

func union(all ...labelSet) labelSet {
	sum := labelSet{}
	for _, one := range all {
		maps.Copy(sum, one)
	}
	return sum
}

// kept returns the labels that are saved, without those ignored by default.
func kept(all labelSet) labelSet {
	ignored, err := labels.ParsePatterns(labels.DefaultIgnored)
	if err != nil {
		panic(err) // a constant
	}
	maps.DeleteFunc(all, func(key, _ string) bool { return ignored.Match(key) })
	return all
}

// TestMachinesKeepTheirWordAndPeopleGetTheirsBack covers former errors of the restore: it removed
// labels that a new machine had registered with, replaced new values by old ones, and restored the
// state of an earlier incarnation.
//
//nolint:tparallel // its parts share the programs, one after the other
func TestMachinesKeepTheirWordAndPeopleGetTheirsBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	for source, tc := range sources {
		t.Run(source, func(t *testing.T) {
			e.t = t
			name := e.name(txn.NodeHash(source)[:8])
			first := e.createAs(tc.kubelet, name, tc.first.registered)
			e.editAs(tc.agent, name, tc.first.later)
			e.editAs("kubectl-label", name, people)
			e.saved(name, kept(union(tc.first.registered, tc.first.later, people)))
			e.delete(name)
			e.recorded(first.UID, txn.Deleted)

			e.createAs(tc.kubelet, name, tc.second.registered)
			e.restored(name, union(tc.second.registered, people))
			e.editAs(tc.agent, name, tc.second.later)
			e.saved(name, kept(union(tc.second.registered, tc.second.later, people)))
			e.hasRestored(t, name, union(tc.second.registered, tc.second.later, people))
		})
	}
	e.t = t
}

// TestPeopleOverruleAgents checks that a person's replacement for an agent's value is restored, and
// that a label removed by a person stays removed, even if every process has been replaced since.
func TestPeopleOverruleAgents(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.watcher(), e.processor()
	name := e.name("node")
	registered := labelSet{"pool": "default", "tier": "bronze", "zone": "a"}
	e.createAs("kubelet", name, registered)
	e.saved(name, registered)
	e.set(name, "pool", "mine")
	e.remove(name, "tier")
	want := labelSet{"pool": "mine", "zone": "a"}
	e.saved(name, want)
	assert.Equal(t, "pool,tier", string(e.record(t, name).Overruled))

	for range 2 {
		e.delete(name)
		require.NoError(t, w.Stop(stopTimeout))
		require.NoError(t, p.Stop(stopTimeout))
		back := e.createAs("kubelet", name, registered)
		w, p = e.watcher(), e.processor()
		e.restored(name, want)
		e.applied(back)
		e.hasRestored(t, name, want)
		assert.Contains(t, strings.Split(string(e.record(t, name).Overruled), ","), "tier", "%v", e.node(t, name).ManagedFields)
	}
	e.editAs("kubelet", name, labelSet{"tier": "silver"})
	want["tier"] = "silver"
	e.saved(name, want)
	assert.Equal(t, "pool", string(e.record(t, name).Overruled), "what an agent sets after the restore is its own again")
}

// TestRemovalThatNoWatcherSaw checks that a missing label of the machine counts as removed by a
// person, unless a watcher saw that agents may have removed it.
func TestRemovalThatNoWatcherSaw(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.watcher()
	e.processor()
	name := e.name("node")
	registered := labelSet{"tier": "bronze", "zone": "a"}
	first := e.createAs("kubelet", name, registered)
	e.saved(name, registered)
	require.NoError(t, w.Stop(stopTimeout))
	e.remove(name, "tier")
	e.watcher()
	e.saved(name, labelSet{"zone": "a"})
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	e.createAs("kubelet", name, registered)
	e.restored(name, labelSet{"zone": "a"})
}

// TestNodeThatAPersonCreatesAgain recreates a Node from its manifest: the machine is the same, and
// its kubelet does not set its labels on an existing Node.
func TestNodeThatAPersonCreatesAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	registered := labelSet{"eks.amazonaws.com/nodegroup": "blue", "kubernetes.io/os": "linux"}
	first := e.createAs("kubelet", name, registered)
	e.set(name, "rack", "r1")
	all := union(registered, labelSet{"rack": "r1"})
	e.saved(name, all)
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	e.createAs("kubectl-create", name, all)
	e.restored(name, all)
}

// TestWithoutMachineManagersEveryLabelIsPeoples checks the restore as it was before it
// distinguished who set a label.
func TestWithoutMachineManagersEveryLabelIsPeoples(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher("--machine-managers=")
	e.processor("--machine-managers=", "--live-labels=")
	name := e.name("node")
	first := e.createAs("kubelet", name, labelSet{"pool": "old"})
	e.saved(name, labelSet{"pool": "old"})
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	e.createAs("kubelet", name, labelSet{"pool": "new", "other": "x"})
	e.restored(name, labelSet{"pool": "old"})
}

// TestIgnoredLabels checks state that was not set by an agent: it is not saved, not restored from
// an older record, and not removed.
func TestIgnoredLabels(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.watcher("--ignore-labels=")
	p := e.processor("--ignore-labels=")
	name := e.name("node")
	first := e.createAs("kubelet", name, labelSet{"kubernetes.io/os": "linux"})
	state := labelSet{"karpenter.sh/initialized": "true", "rack": "r1"}
	e.editAs("manager", name, state)
	e.saved(name, union(labelSet{"kubernetes.io/os": "linux"}, state))
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	require.NoError(t, w.Stop(stopTimeout))
	require.NoError(t, p.Stop(stopTimeout))

	e.watcher()
	e.processor()
	second := e.createAs("manager", name, labelSet{"kubernetes.io/os": "linux", "karpenter.sh/registered": "true"})
	want := labelSet{"kubernetes.io/os": "linux", "rack": "r1"}
	e.saved(name, want)
	e.restored(name, union(want, labelSet{"karpenter.sh/registered": "true"}))
	e.editAs("manager", name, labelSet{"karpenter.sh/initialized": "true", "tier": "x"})
	e.saved(name, union(want, labelSet{"tier": "x"}))
	e.delete(name)
	e.recorded(second.UID, txn.Deleted)
	e.createAs("kubelet", name, labelSet{"kubernetes.io/os": "linux"})
	e.restored(name, union(want, labelSet{"tier": "x"}))
}

// TestIgnoredForAWhile has an agent's label that was ignored for a while. No person removed it, so
// the next machine keeps its own.
func TestIgnoredForAWhile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	run := func(ignored string) (stop func()) {
		w, p := e.watcher("--ignore-labels="+ignored), e.processor("--ignore-labels="+ignored)
		return func() { e.stop(w); e.stop(p) }
	}
	stop := run("")
	first := e.createAs("kubelet", name, labelSet{"example.com/pool": "a"})
	e.editAs("kubectl", name, labelSet{"rack": "r1"})
	e.saved(name, labelSet{"example.com/pool": "a", "rack": "r1"})
	stop()

	stop = run("example.com/pool")
	e.editAs("kubectl", name, labelSet{"rack": "r2"})
	e.saved(name, labelSet{"rack": "r2"})
	e.delete(name)
	e.ended(first)
	stop()

	run("")
	e.createAs("kubelet", name, labelSet{"example.com/pool": "b"})
	e.restored(name, labelSet{"example.com/pool": "b", "rack": "r2"})
	e.settle()
}

// TestRemovalAfterARestartOfTheWatcherCounts checks that a watcher also knows from its first list
// who set the labels of a node.
func TestRemovalAfterARestartOfTheWatcherCounts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	first := e.createAs("kubelet", name, labelSet{"tier": "bronze", "zone": "a"})
	e.watcher()
	e.processor()
	e.saved(name, labelSet{"tier": "bronze", "zone": "a"})
	e.applied(first)
	e.remove(name, "tier")
	e.saved(name, labelSet{"zone": "a"})
	assert.Equal(t, "tier", string(e.record(t, name).Overruled))
	assert.Equal(t, "zone", string(e.record(t, name).Machine))
}
