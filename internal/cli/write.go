package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dryRun is what --dry-run says.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

// addDryRunFlag adds --dry-run.
func addDryRunFlag(cmd *cobra.Command, value *dryRun) {
	cmd.Flags().StringVar((*string)(value), "dry-run", string(dryRunNone),
		"none: do it. client: only say what would be done. server: have the API server check the writes too, and store nothing.")
	completeFlag(cmd, "dry-run", string(dryRunNone), string(dryRunClient), string(dryRunServer))
}

func (d dryRun) validate() error {
	return oneOf("--dry-run", d, dryRunNone, dryRunClient, dryRunServer)
}

// isDry says whether nothing is to be stored.
func (d dryRun) isDry() bool { return d != dryRunNone }

// suffix is what is printed after what would have been done.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	case dryRunNone:
	}
	return ""
}

// writer returns the client to write with. It is not to be used with --dry-run=client.
func (d dryRun) writer(c *cluster) client.Client {
	if d == dryRunServer {
		return client.NewDryRunClient(c.client)
	}
	return c.client
}

// confirmed asks people, unless they have said yes already, and returns an error unless they agree.
func (p *plugin) confirmed(isYes bool, question string) error {
	if isYes {
		return nil
	}
	_, _ = fmt.Fprintf(p.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(p.In).ReadString('\n')
	if err != nil && answer == "" {
		_, _ = fmt.Fprintln(p.ErrOut)
		return errors.New("nothing is done without a yes: answer y, or give --yes")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing is done, as you said")
}

// addYesFlag adds --yes.
func addYesFlag(cmd *cobra.Command, isYes *bool) {
	cmd.Flags().BoolVarP(isYes, "yes", "y", false, "Do not ask.")
}

// addTimeoutFlag adds --timeout.
func addTimeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", time.Minute, "For how long to wait until the processors have applied it.")
}
