package labels

import "strings"

// MachineBound selects the labels that belong to the machine that they were set on, and not to the
// name of the node: restricted labels, see [Restricted], and those that the patterns match. The
// zero value selects only restricted labels. It selects no annotations and no taints.
type MachineBound struct{ patterns Patterns }

// ParseMachineBound returns the selection with these patterns, see [ParsePatterns].
func ParseMachineBound(list string) (MachineBound, error) {
	patterns, err := ParsePatterns(list)
	return MachineBound{patterns}, err
}

// Match reports whether a label belongs to a machine.
func (b MachineBound) Match(key string) bool { return Restricted(key) || b.patterns.Match(key) }

// DefaultSameMachine are labels that are true of one machine, whoever sets them: programs that
// drain a machine, upgrade it or install something on it set them, and people do, too.
// docs/explanation/labels.md has the source of each.
var DefaultSameMachine = strings.Join([]string{
	// Drains and the end of a machine.
	"node.kubernetes.io/exclude-from-external-load-balancers",
	"alpha.service-controller.kubernetes.io/exclude-balancer",
	"aws-node-termination-handler/*",
	"cloud.google.com/active-node-maintenance",
	"cloud.google.com/perform-maintenance",
	"cloud.google.com/scheduled-maintenance-time*",
	// What is installed on it.
	"katacontainers.io/kata-runtime",
	"cc-preinstall/done",
	"cc-postuninstall/done",
	"kwasm.sh/kwasm-provisioned",
	"crio-runtime",
	"sysbox-runtime",
	"plan.upgrade.cattle.io/*",
}, ",")
