package agents

import "strings"

// Default are the field managers of well-known agents. All of them set their labels again when a
// Node is registered again, even if the machine is the same, so their labels need not be restored.
// Managers of programs that label a Node only once, as kubeadm and k3s do with roles, are excluded.
// docs/explanation/labels.md lists the labels that each sets, with evidence.
var Default = strings.Join([]string{
	// The kubelet, also when it shares a process with other programs.
	"kubelet",
	"kubelet.exe",
	"kubelite",
	"hyperkube",
	"k3s",
	"rke2",
	"machined",
	"cloudcore",
	"virtual-kubelet",
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
	"exoscale-cloud-controller-manager",
	"hcloud-cloud-controller-manager",
	"hetzner-cloud-controller-manager",
	"ibm-cloud-controller-manager",
	"linode-cloud-controller-manager*",
	"oci-cloud-controller-manager",
	"openstack-cloud-controller-manager",
	"proxmox-cloud-controller-manager",
	"rke2-cloud-controller-manager",
	"scaleway-cloud-controller-manager",
	"talos-cloud-controller-manager",
	"vsphere-cloud-controller-manager",
	"aws-k8s-agent",
	"plugin.csi.alibabacloud.com",
	// Machine provisioners.
	"capi-machine",
	"cluster-api-controller-manager",
	"deckhouse-controller",
	"deckhouse-hook",
	"karpenter",
	"kops-controller",
	"machine-controller",
	"nodelink-controller",
	"yurt-manager",
	// Networks.
	"antrea-agent",
	"calico-node",
	"cilium-agent",
	"flanneld",
	"kube-ovn-daemon",
	"ovnkube",
	// Hardware discovery.
	"nfd-master",
	"gpu-operator",
	"nvidia-mig-manager",
	"k8s-node-labeller",
	"virt-handler",
}, ",")
