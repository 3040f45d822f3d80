package agents

import "strings"

// Default are the field managers of well-known agents. All of them set their labels again by
// themselves when a Node is registered again, also if the machine has stayed the same: what is
// theirs need not be put back. So the managers of programs that label a Node only once, as kubeadm
// and k3s do with roles, are not among them. See docs/explanation/labels.md for what each sets, and how that is
// known.
var Default = strings.Join([]string{
	// The kubelet, also within one process with others.
	"kubelet",
	"kubelet.exe",
	"kubelite",
	"k3s",
	// Controllers of Kubernetes and of clouds.
	"kube-controller-manager",
	"cloud-controller-manager",
	"aws-cloud-controller-manager",
	"azure-cloud-controller-manager",
	"cloud-node-manager",
	"azure-cloud-node-manager",
	"gcp-cloud-controller-manager",
	"gcp-controller-manager",
	"digitalocean-cloud-controller-manager",
	"hcloud-cloud-controller-manager",
	"oci-cloud-controller-manager",
	"openstack-cloud-controller-manager",
	"vsphere-cloud-controller-manager",
	"aws-k8s-agent",
	"plugin.csi.alibabacloud.com",
	// What makes machines.
	"karpenter",
	"kops-controller",
	"machine-controller",
	"nodelink-controller",
	// What looks at the hardware.
	"nfd-master",
	"gpu-operator",
	"nvidia-mig-manager",
	"k8s-node-labeller",
	"virt-handler",
}, ",")
