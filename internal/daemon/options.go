package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Options are the settings of every program. They come only from flags.
type Options struct {
	Kubeconfig             string
	MetricsBindAddress     string
	HealthProbeBindAddress string
	PprofBindAddress       string
	Identity               string
	// WaitForCluster makes the program wait, unready, until the cluster passes the startup checks,
	// instead of exiting.
	WaitForCluster bool
	Verbosity      int

	// printVersion makes the program print its version and exit.
	printVersion bool
}

// AddFlags adds the flags of the options to fs, with their defaults.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster (default $KUBECONFIG, else the service account of the pod)")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":8080", "`address` of the metrics endpoint; 0 for none")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", "0", "`address` of /debug/pprof, profiles of time and memory; 0 for none")
	fs.StringVar(&o.Identity, "identity", "", "unique `name` of this process (default $POD_NAME, else host name and a random suffix)")
	fs.BoolVar(&o.WaitForCluster, "wait-for-cluster", false, "while the API server is unavailable or too old, or namespaces or permissions are missing: stay unready and retry, instead of exiting")
	fs.IntVar(&o.Verbosity, "v", 0, "log `level`: 0 logs changes in the cluster, 1 also decisions, 2 also steps (default 0)")
	fs.BoolVar(&o.printVersion, "version", false, "print the version and exit")
}

// ErrHelp means that the arguments request help, which has been printed.
var ErrHelp = flag.ErrHelp

// ErrVersion means that the arguments request the version, which [Main] prints.
var ErrVersion = errors.New("version requested")

// Parse parses the arguments into fs, prints help to stderr on request, and completes and validates
// the options. Any error except [ErrHelp] and [ErrVersion] is one line with advice.
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
	// A host name may contain capitals, but the identity must be a valid object name.
	o.Identity = strings.ToLower(host) + "-" + rand.String(6)
	return nil
}

func (o *Options) validate() error {
	if problems := apivalidation.NameIsDNSSubdomain(o.Identity, false); len(problems) > 0 {
		return fmt.Errorf("--identity %q cannot be used: %s", o.Identity, problems[0])
	}
	if o.Verbosity < 0 {
		return fmt.Errorf("-v %d: give 0 or more", o.Verbosity)
	}
	return nil
}
