package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// preservedReports are the cases of docs/explanation/reports.md about taints and annotations. Only
// those that are named in them are compared.
var preservedReports = map[string]report{
	"kubernetes/kubernetes#64650: dedicated nodes come back without their taint": {
		edits:  []edit{{manager: "kubectl-taint", taints: []corev1.Taint{noSchedule("dedicated", "vault")}}},
		taints: []corev1.Taint{noSchedule("dedicated", "vault")},
	},
	"kubernetes/kubernetes#61903: a node that was cordoned and deleted": {
		edits: []edit{{manager: "kubectl-cordon", taints: []corev1.Taint{noSchedule(corev1.TaintNodeUnschedulable, "")}}},
	},
	"vmware-archive/kubernetes-archived#140: a node that was cordoned for maintenance": {
		first:  arrival{systemUUID: "a"},
		edits:  []edit{{manager: "kubectl-cordon", taints: []corev1.Taint{noSchedule(corev1.TaintNodeUnschedulable, ""), noSchedule("example.com/maintenance", "")}}},
		second: arrival{systemUUID: "a"},
		taints: []corev1.Taint{noSchedule("example.com/maintenance", "")},
	},
	"kubernetes-sigs/karpenter#1772: startup taints of drivers": {
		first:  arrival{taints: []corev1.Taint{noExecute("ebs.csi.aws.com/agent-not-ready"), noExecute("node.gardener.cloud/critical-components-not-ready")}},
		edits:  []edit{{manager: "aws-ebs-csi-driver", taints: []corev1.Taint{}}},
		second: arrival{taints: []corev1.Taint{noExecute("ebs.csi.aws.com/agent-not-ready"), noExecute("node.gardener.cloud/critical-components-not-ready")}},
		taints: []corev1.Taint{noExecute("ebs.csi.aws.com/agent-not-ready"), noExecute("node.gardener.cloud/critical-components-not-ready")},
	},
	"piraeusdatastore/piraeus-ha-controller#23: taints of storage are not removed": {
		edits: []edit{{manager: "piraeus-ha-controller", taints: []corev1.Taint{noSchedule("drbd.linbit.com/lost-quorum", ""), noSchedule("drbd.linbit.com/force-io-error", "")}}},
	},
	"medik8s/self-node-remediation#253: taints of a remediation": {
		edits: []edit{{manager: "manager", taints: []corev1.Taint{noExecute("medik8s.io/remediation")}}},
	},
	"k3s-io/k3s#8359: a removal from etcd is requested once more": {
		edits: []edit{{manager: "kubectl-annotate", annotations: map[string]string{"etcd.k3s.cattle.io/remove": "true", "example.com/owner": "team-a"}}},
		annotations: map[string]string{
			"etcd.k3s.cattle.io/remove": "", "example.com/owner": "team-a",
		},
	},
	"flannel-io/flannel#1978: the address that people give to a node": {
		edits: []edit{
			{manager: "flanneld", annotations: map[string]string{"flannel.alpha.coreos.com/backend-data": `{"VtepMAC":"a6:0c:3f:11:22:33"}`}},
			{manager: "kubectl-annotate", annotations: map[string]string{"flannel.alpha.coreos.com/public-ip-overwrite": "192.0.2.9"}},
		},
		annotations: map[string]string{
			"flannel.alpha.coreos.com/public-ip-overwrite": "192.0.2.9", "flannel.alpha.coreos.com/backend-data": "",
		},
	},
	"openshift/machine-config-operator#2010: a node looks for a former configuration": {
		edits:       []edit{{manager: "machine-config-daemon", annotations: map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1"}}},
		annotations: map[string]string{"machineconfiguration.openshift.io/currentConfig": ""},
	},
	"harvester/harvester#5598: a node enters maintenance again": {
		edits:       []edit{{manager: "kubectl-annotate", annotations: map[string]string{"harvesterhci.io/drain-requested": "true"}}},
		annotations: map[string]string{"harvesterhci.io/drain-requested": ""},
	},
	"kubereboot/kured#603: a reboot is in progress": {
		edits:       []edit{{manager: "kured", annotations: map[string]string{"weave.works/kured-reboot-in-progress": "2022-07-19T10:00:00Z"}}},
		annotations: map[string]string{"weave.works/kured-reboot-in-progress": ""},
	},
	"longhorn/longhorn#1053: disks that people choose for a node": {
		edits: []edit{{manager: "kubectl-annotate", labels: labelSet{"node.longhorn.io/create-default-disk": "config"}, annotations: map[string]string{"node.longhorn.io/default-disks-config": `[{"path":"/mnt/disk1"}]`}}},
		want:  labelSet{"node.longhorn.io/create-default-disk": "config"}, annotations: map[string]string{"node.longhorn.io/default-disks-config": `[{"path":"/mnt/disk1"}]`},
	},
}

// TestReportsOfTaintsAndAnnotations tries reports with flags that keep as much as possible.
func TestReportsOfTaintsAndAnnotations(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	all := []string{"--preserve-taints=*,*:NoExecute", "--preserve-annotations=*"}
	e.watcher(all...)
	e.processor(all...)
	lives := map[string]func(e *env, name string){}
	for title, tc := range preservedReports {
		lives[title] = func(e *env, name string) {
			e.try(name, tc)
			assert.Equal(e.t, tc.taints, e.taintsOf(e.t, name))
			annotations := e.node(e.t, name).Annotations
			for key, want := range tc.annotations {
				assert.Equal(e.t, want, annotations[key], key)
			}
		}
	}
	e.inParallel(lives)
}
