package labels

import (
	"fmt"
	"strings"
)

// Mode is what happens to the labels that only the live node has.
type Mode string

const (
	// Replace makes the node's labels exactly the saved ones, live labels aside.
	Replace Mode = "replace"
	// Merge adds the saved labels; keys that only the live node has stay.
	Merge Mode = "merge"
)

// ParseMode returns the mode of that name, or an error that lists the names.
func ParseMode(name string) (Mode, error) {
	switch mode := Mode(name); mode {
	case Replace, Merge:
		return mode, nil
	}
	return "", fmt.Errorf("unknown mode %q: use %q or %q", name, Replace, Merge)
}

// Policy determines which labels a restore writes. The zero value is not valid: Mode must be set.
type Policy struct {
	Mode Mode
	// Live selects the live labels: those that describe the machine itself. Where the
	// new incarnation carries one, its value wins. Empty selects none.
	Live Patterns
	// Ignored selects labels that are not restored, whoever has saved them.
	Ignored Patterns
	// Preserves reports whether the annotation or taint of a key is restored. Nil restores none.
	Preserves func(key string) bool
	// Restricted is what happens to restricted labels.
	Restricted RestrictedMode
}

// Side is what a restore knows of the labels on one of its sides: the returned node, or what is
// saved of it. No map has the marker.
type Side struct {
	Labels map[string]string
	// Machine are the keys that the machine's agents set, and nobody else.
	Machine Keys
	// Unclear are the keys of labels of which nobody knows who had set them. No key of Machine is
	// among them.
	Unclear Keys
	// Overruled are keys that agents had set and that a person has changed or removed. Only what is
	// saved has them.
	Overruled Keys
	// Withheld are keys that are saved apart from Labels, as they are not put back onto this machine.
	// Only what is saved has them.
	Withheld Keys
}

// Restored returns the labels that a node gets by a restore, from those that it carries and those
// that were saved of it. The table in docs/design.md ("What a restore writes") has the rules for each
// key, in order. In short: a live label stays as the node has it, what people had set is put back, and
// what agents say of the returned machine stays, unless a person had overruled it. What only the
// agents of the former machine had said is not put back. A restricted label that is not put back
// stays as the node has it: somebody else has set that. An annotation or a taint of the node stays,
// unless a person had overruled it.
func (p Policy) Restored(live, saved Side) map[string]string {
	result := make(map[string]string, len(live.Labels)+len(saved.Labels))
	former, unclear, overruled := saved.Machine.Set(), saved.Unclear.Set(), saved.Overruled.Set()
	for key, value := range saved.Labels {
		if !former[key] && !p.Ignored.Match(key) && !p.drops(key) && p.Has(key) {
			result[key] = value
		}
	}
	withheld := saved.Withheld.Set()
	machine, claimed := live.Machine.Set(), live.Machine.Union(live.Unclear).Set()
	for key, value := range live.Labels {
		_, wished := result[key]
		switch {
		case p.Live.Match(key), (machine[key] || IsTaint(key) && claimed[key]) && unclear[key] && !overruled[key]:
			result[key] = value
		case wished:
		case withheld[key], p.drops(key):
			result[key] = value
		case (claimed[key] || former[key] || !IsLabel(key)) && !overruled[key], p.Mode == Merge:
			result[key] = value
		}
	}
	return result
}

// Has reports whether a key is that of a label, or of an annotation or a taint that is restored.
func (p Policy) Has(key string) bool { return IsLabel(key) || p.Preserves != nil && p.Preserves(key) }

// drops reports whether a label is restricted and never restored.
func (p Policy) drops(key string) bool { return p.Restricted == Drop && Restricted(key) }

// Patterns is a set of label keys. The zero value is the empty set.
type Patterns struct {
	exact      map[string]struct{}
	prefixes   []string
	subdomains []string // ".example.com/": the namespaces below example.com
}

// DefaultLive are the keys that a kubelet may set on its own Node: k8s.io/kubelet/pkg/apis
// (well_known_labels.go), the list behind the admission plugin NodeRestriction.
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

// DefaultIgnored are labels that say how far something has got with a machine, and not what anybody
// wants: on another machine they are wrong, whoever sets them. docs/explanation/labels.md has the reasons.
var DefaultIgnored = strings.Join([]string{
	"karpenter.sh/registered",
	"karpenter.sh/initialized",
	"k8s.io/cloud-provider-aws",
	"nvidia.com/gfd.timestamp",
	"nvidia.com/gpu-driver-upgrade-state",
	"nvidia.com/mig.config.state",
	"vpc.amazonaws.com/has-trunk-attached",
	"kubevirt.io/schedulable",
}, ",")

// ParsePatterns reads a comma-separated list of label keys. "key" is that key,
// "prefix*" every key that begins so, and "*.example.com/*" every key in a
// namespace below example.com. Space around an item is ignored, and so is an
// empty item: "" is the empty set.
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
	case strings.Contains(prefix, "*") || strings.ContainsAny(prefix, " \t="):
		return fmt.Errorf("unreadable pattern %q: use a label key, a prefix and *, or *.domain/*", item)
	case isPrefix:
		p.prefixes = append(p.prefixes, prefix)
	default:
		p.exact[item] = struct{}{}
	}
	return nil
}

// Match reports whether key is in the set. It is false for the keys of [AnnotationKey] and
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
	slash := strings.IndexByte(key, '/')
	for _, subdomain := range p.subdomains {
		if strings.HasSuffix(key[:slash+1], subdomain) {
			return true
		}
	}
	return false
}
