package service

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/rand"

	"nodekeeper.dev/internal/agents"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/ring"
)

// Options are the settings that every service has. They come from flags alone.
type Options struct {
	Kubeconfig             string
	TransactionNamespace   string
	MetadataNamespace      string
	MembershipNamespace    string
	MetricsBindAddress     string
	HealthProbeBindAddress string
	PprofBindAddress       string
	Identity               string
	// WaitForCluster makes the service wait, not ready, until the cluster can be worked with,
	// instead of ending.
	WaitForCluster bool
	Verbosity      int
	// MachineManagers are the field managers whose labels are the machine's, IgnoreLabels the labels
	// that are not looked at, and NodeSelector selects the nodes that are looked after; View are all
	// three, once they are parsed.
	MachineManagers, IgnoreLabels, NodeSelector string
	View                                        nodeview.View

	// printVersion makes the program print its version and exit.
	printVersion bool
}

// AddFlags adds the flags of the options to fs, with their defaults.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster (default $KUBECONFIG, else the service account of the pod)")
	fs.StringVar(&o.TransactionNamespace, "transaction-namespace", "node-metadata-transactions", "`namespace` of transactions and node locks; created if it is missing")
	fs.StringVar(&o.MetadataNamespace, "metadata-namespace", "node-metadata", "`namespace` of records; created if it is missing")
	fs.StringVar(&o.MembershipNamespace, "membership-namespace", ring.DefaultNamespace, "`namespace` of the Leases of the replicas; created if it is missing")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 for none")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", "0", "`address` of /debug/pprof, profiles of time and memory; 0 for none")
	fs.StringVar(&o.Identity, "identity", "", "unique `name` of this process (default $POD_NAME, else host name and a random suffix)")
	fs.BoolVar(&o.WaitForCluster, "wait-for-cluster", false, "if the API server is away or too old, or namespaces or permissions are missing: wait, not ready, and retry, instead of ending")
	fs.StringVar(&o.MachineManagers, "machine-managers", agents.Default, "`names` of the field managers, or prefix*, separated by commas, by which the machines' own agents set labels; empty for none. Use the same value for watchers and processors")
	fs.StringVar(&o.IgnoreLabels, "ignore-labels", labels.DefaultIgnored, "label `keys`, prefix* and *.domain/* patterns, separated by commas, that are neither saved nor restored nor removed; empty for none. Use the same value for watchers and processors")
	fs.StringVar(&o.NodeSelector, "node-selector", "", "label `selector` of the nodes that are looked after, as for kubectl get -l; empty for all. Use the same value for watchers and processors")
	fs.IntVar(&o.Verbosity, "v", 0, "log `level`: 0 changes in the cluster, 1 decisions too, 2 steps too")
	fs.BoolVar(&o.printVersion, "version", false, "print the version and exit")
}

// ErrHelp means that the arguments asked for help, which has been printed.
var ErrHelp = flag.ErrHelp

// ErrVersion means that the arguments ask for the version, which [Main] prints.
var ErrVersion = errors.New("asked for the version")

// Parse reads the arguments into fs, prints help to stderr if that is asked for, and completes and
// checks the options. Any error but [ErrHelp] and [ErrVersion] is one line that says what to do.
func (o *Options) Parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(io.Discard) // the flag package would print every flag on every error
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(stderr)
			_, _ = fmt.Fprintf(stderr, "Usage of %s:\n", fs.Name())
			fs.PrintDefaults()
			return ErrHelp
		}
		return fmt.Errorf("%w: see %s --help", err, fs.Name())
	}
	if o.printVersion {
		return ErrVersion
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: every setting is a flag, see %s --help", fs.Arg(0), fs.Name())
	}
	if err := o.complete(); err != nil {
		return err
	}
	return o.validate()
}

// complete sets the options that have no fixed default.
func (o *Options) complete() error {
	if o.Identity == "" {
		o.Identity = os.Getenv("POD_NAME")
	}
	if o.Identity != "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding a name for this process: %w: set --identity", err)
	}
	// A host name may have capitals; the identity must be a valid name of an object.
	o.Identity = strings.ToLower(host) + "-" + rand.String(6)
	return nil
}

func (o *Options) validate() error {
	for flagName, namespace := range map[string]string{
		"transaction-namespace": o.TransactionNamespace,
		"metadata-namespace":    o.MetadataNamespace,
		"membership-namespace":  o.MembershipNamespace,
	} {
		if problems := apivalidation.ValidateNamespaceName(namespace, false); len(problems) > 0 {
			return fmt.Errorf("--%s %q is no namespace name: %s", flagName, namespace, problems[0])
		}
	}
	if o.TransactionNamespace == o.MetadataNamespace {
		return fmt.Errorf("--transaction-namespace and --metadata-namespace are both %q: give two different ones", o.MetadataNamespace)
	}
	if o.TransactionNamespace == o.MembershipNamespace { // the Leases there are the locks of nodes
		return fmt.Errorf("--transaction-namespace and --membership-namespace are both %q: give two different ones", o.MembershipNamespace)
	}
	if problems := apivalidation.NameIsDNSSubdomain(o.Identity, false); len(problems) > 0 {
		return fmt.Errorf("--identity %q cannot be used: %s", o.Identity, problems[0])
	}
	var err error
	if o.View, err = nodeview.Parse(o.MachineManagers, o.IgnoreLabels, o.NodeSelector); err != nil {
		return err
	}
	if o.Verbosity < 0 {
		return fmt.Errorf("-v %d: give 0 or more", o.Verbosity)
	}
	return nil
}
