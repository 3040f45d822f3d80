package labels

import (
	"fmt"
	"strings"
)

// Patterns is a set of patterns for label keys. The zero value matches nothing.
type Patterns struct {
	exact      map[string]struct{}
	prefixes   []string
	subdomains []string // ".example.com/": the namespaces below example.com
	infixes    []infix
}

// infix matches the keys that begin and end with the given texts, with anything between them.
type infix struct{ prefix, suffix string }

// DefaultLive are the keys that a kubelet may set on its own Node: k8s.io/kubelet/pkg/apis
// (well_known_labels.go), the list used by the admission plugin NodeRestriction.
var DefaultLive = strings.Join([]string{
	"kubernetes.io/hostname",
	"kubernetes.io/os",
	"kubernetes.io/arch",
	"node.kubernetes.io/instance-type",
	"topology.kubernetes.io/zone",
	"topology.kubernetes.io/region",
	"beta.kubernetes.io/os",
	"beta.kubernetes.io/arch",
	"beta.kubernetes.io/instance-type",
	"failure-domain.beta.kubernetes.io/zone",
	"failure-domain.beta.kubernetes.io/region",
	"kubelet.kubernetes.io/*",
	"*.kubelet.kubernetes.io/*",
	"node.kubernetes.io/*",
	"*.node.kubernetes.io/*",
}, ",")

// DefaultIgnored are labels that are only true at a moment: they record the progress of a process
// on a machine, not a user's intent. Later they are wrong, whoever sets them.
// docs/explanation/labels.md has the reasons.
var DefaultIgnored = strings.Join([]string{
	"karpenter.sh/registered",
	"karpenter.sh/initialized",
	"k8s.io/cloud-provider-aws",
	"nvidia.com/gfd.timestamp",
	"nvidia.com/gpu-driver-upgrade-state", "nvidia.com/*-driver-upgrade-state",
	"amd.com/*-driver-upgrade-state",
	"operator.amd.com/*-driver-upgrade-state",
	"rebellions.ai/*-driver-upgrade-state",
	"nvidia.com/mig.config.state", "nvidia.com/*.state",
	"network.nvidia.com/operator.*.wait",
	"sriovnetwork.openshift.io/device-plugin",
	"vpc.amazonaws.com/has-trunk-attached",
	"kubevirt.io/schedulable",
	"kube-vip.io/has-ip",
	"kubip_assigned",
	"projectcalico.org/operator-node-migration",
	"lifecycle-status",
	"reboot-pending", "*/reboot-pending",
	"reboot-needed", "*/reboot-needed",
	"reboot-required", "*/reboot-required",
	"container-linux-update.v1.coreos.com/*-reboot",
	"flatcar-linux-update.v1.flatcar-linux.net/*-reboot",
}, ",")

// ParsePatterns parses a comma-separated list of label keys. "key" matches that key, "prefix*"
// every key with that prefix, "example.com/prefix*suffix" the keys in that namespace whose names
// begin and end so, "*/name" that name in every namespace, and "*.example.com/*" every key in a
// namespace below example.com. Spaces around items and empty items are ignored.
func ParsePatterns(list string) (Patterns, error) {
	patterns := Patterns{exact: map[string]struct{}{}}
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if err := patterns.add(item); err != nil {
			return Patterns{}, err
		}
	}
	return patterns, nil
}

func (p *Patterns) add(item string) error {
	prefix, isPrefix := strings.CutSuffix(item, "*")
	domain, isSubdomain := strings.CutPrefix(prefix, "*.")
	switch {
	case isPrefix && isSubdomain && strings.HasSuffix(domain, "/") && !strings.Contains(domain, "*"):
		p.subdomains = append(p.subdomains, "."+domain)
	case !isPrefix && isInfix(item):
		before, after, _ := strings.Cut(item, "*")
		p.infixes = append(p.infixes, infix{before, after})
	case strings.Contains(prefix, "*") || strings.ContainsAny(prefix, " \t="):
		return fmt.Errorf("unreadable pattern %q: use a label key, a prefix and *, domain/*suffix, */name, or *.domain/*", item)
	case isPrefix:
		p.prefixes = append(p.prefixes, prefix)
	default:
		p.exact[item] = struct{}{}
	}
	return nil
}

// isInfix reports whether an item has one star, in the name of the key or for its whole namespace.
func isInfix(item string) bool {
	before, after, found := strings.Cut(item, "*")
	isInName := strings.Contains(before, "/") || before == "" && strings.HasPrefix(after, "/")
	return found && isInName && !strings.ContainsAny(item, " \t=") && !strings.Contains(after, "*")
}

// Match reports whether a pattern matches the key. It is false for the keys of [AnnotationKey] and
// [TaintKey].
func (p Patterns) Match(key string) bool {
	if !IsLabel(key) {
		return false
	}
	if _, ok := p.exact[key]; ok {
		return true
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	for _, i := range p.infixes {
		if len(key) >= len(i.prefix)+len(i.suffix) && strings.HasPrefix(key, i.prefix) && strings.HasSuffix(key, i.suffix) {
			return true
		}
	}
	slash := strings.IndexByte(key, '/')
	for _, subdomain := range p.subdomains {
		if strings.HasSuffix(key[:slash+1], subdomain) {
			return true
		}
	}
	return false
}
