package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"nodekeeper.dev/internal/daemon/version"
)

// ErrHelp means that the arguments request help, which has been printed.
var ErrHelp = flag.ErrHelp

// ErrVersion means that the arguments request the version.
var ErrVersion = errors.New("version requested")

// common are the flags of both commands.
type common struct {
	kubeconfig   string
	verbosity    int
	printVersion bool
}

func (o *common) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster (default $KUBECONFIG, else the service account of the pod)")
	fs.IntVar(&o.verbosity, "v", 0, "log `level`: 0 logs changes in the cluster, 1 also decisions, 2 also steps (default 0)")
	fs.BoolVar(&o.printVersion, "version", false, "print the version and exit")
}

// parse parses arguments, and prints help to stderr on request. Any error except [ErrHelp] and
// [ErrVersion] is one line with advice.
func (o *common) parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
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
	switch {
	case o.printVersion:
		return ErrVersion
	case o.verbosity < 0:
		return fmt.Errorf("-v %d: give 0 or more", o.verbosity)
	}
	return nil
}

// begin returns ctx with the logger of the program, which writes JSON lines to w. It logs the start
// with all settings.
func (o *common) begin(ctx context.Context, fs *flag.FlagSet, w io.Writer) context.Context {
	log := logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}))
	klog.SetLogger(log)
	settings := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { settings[f.Name] = f.Value.String() })
	delete(settings, "version") // not a setting
	log.Info("Started", "program", fs.Name(), "version", version.Version, "commit", version.Commit(), "flags", settings)
	return logr.NewContext(ctx, log)
}
