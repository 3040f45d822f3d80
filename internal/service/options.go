package service

import (
	"flag"
	"fmt"
	"io"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/ring"
)

// Options are the settings of every service. They come only from flags.
type Options struct {
	daemon.Options

	TransactionNamespace string
	MetadataNamespace    string
	MembershipNamespace  string
	// MachineManagers are the field managers whose labels belong to the machine, IgnoreLabels the
	// labels to ignore, and NodeSelector selects nodes.
	MachineManagers, IgnoreLabels, NodeSelector string
	// SameMachineLabels are labels that belong to a machine and not to the name of a node.
	SameMachineLabels string
	// PreserveAnnotations and PreserveTaints select the annotations and taints to preserve.
	PreserveAnnotations, PreserveTaints string
	// View is parsed from the six settings above.
	View nodeview.View
}

// AddFlags adds the flags of the options to fs, with their defaults.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	o.Options.AddFlags(fs)
	fs.StringVar(&o.TransactionNamespace, "transaction-namespace", "node-metadata-transactions", "`namespace` of transactions and node locks; created if it is missing")
	fs.StringVar(&o.MetadataNamespace, "metadata-namespace", "node-metadata", "`namespace` of records; created if it is missing")
	fs.StringVar(&o.MembershipNamespace, "membership-namespace", ring.DefaultNamespace, "`namespace` of the Leases of the replicas; created if it is missing")
	fs.StringVar(&o.MachineManagers, "machine-managers", agents.Default, "`names` of field managers, or prefix*, separated by commas, that the machines' own agents use: their labels belong to the machine; empty for none. Use the same value for all programs")
	fs.StringVar(&o.IgnoreLabels, "ignore-labels", labels.DefaultIgnored, "label `keys` and patterns (prefix*, domain/*suffix, */name, *.domain/*), separated by commas, that are neither saved nor restored nor removed: by default labels that are only true at a moment, such as karpenter.sh/initialized; empty for none. Use the same value for all programs")
	fs.StringVar(&o.SameMachineLabels, "same-machine-labels", labels.DefaultSameMachine, "label `keys` and patterns (prefix*, domain/*suffix, */name, *.domain/*), separated by commas, that are restored only onto the machine that they were saved from: by default labels that programs set while they drain, upgrade or equip a machine; empty for none, * for all. Restricted labels have a flag of their own, --restricted-labels. Use the same value for all programs")
	fs.StringVar(&o.NodeSelector, "node-selector", "", "label `selector`, as for \"kubectl get -l\": nodes that do not match it are ignored. Use the same value for all programs (default all nodes)")
	fs.StringVar(&o.PreserveAnnotations, "preserve-annotations", "", "`keys` of annotations, prefix* and *.domain/* patterns, separated by commas, that are saved and restored like labels. Use the same value for all programs (default none)")
	fs.StringVar(&o.PreserveTaints, "preserve-taints", "", "`keys` of taints, prefix* and *.domain/* patterns, separated by commas, each optionally followed by :NoSchedule, :PreferNoSchedule or :NoExecute (without an effect: NoSchedule and PreferNoSchedule), that are saved and restored like labels. Use the same value for all programs (default none)")
	fs.SetOutput(io.Discard) // the flag package would print every flag on every error
}

// Parse parses the arguments into fs and completes and validates the options, see
// [daemon.Options.Parse].
func (o *Options) Parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	if err := o.Options.Parse(fs, args, stderr); err != nil {
		return err //nolint:wrapcheck // it is one line with advice
	}
	return o.validate()
}

func (o *Options) validate() error {
	for flagName, namespace := range map[string]string{
		"transaction-namespace": o.TransactionNamespace,
		"metadata-namespace":    o.MetadataNamespace,
		"membership-namespace":  o.MembershipNamespace,
	} {
		if problems := apivalidation.ValidateNamespaceName(namespace, false); len(problems) > 0 {
			return fmt.Errorf("--%s %q is not a valid namespace name: %s", flagName, namespace, problems[0])
		}
	}
	if o.TransactionNamespace == o.MetadataNamespace {
		return fmt.Errorf("--transaction-namespace and --metadata-namespace are both %q: give two different ones", o.MetadataNamespace)
	}
	if o.TransactionNamespace == o.MembershipNamespace { // the Leases there are the locks of nodes
		return fmt.Errorf("--transaction-namespace and --membership-namespace are both %q: give two different ones", o.MembershipNamespace)
	}
	var err error
	if o.View, err = nodeview.Parse(o.MachineManagers, o.IgnoreLabels, o.NodeSelector); err != nil {
		return err
	}
	if o.View.MachineBound, err = labels.ParseMachineBound(o.SameMachineLabels); err != nil {
		return fmt.Errorf("--same-machine-labels: %w", err)
	}
	if o.View.Preserved, err = nodeview.ParsePreserved(o.PreserveAnnotations, o.PreserveTaints); err != nil {
		return err
	}
	return nil
}
