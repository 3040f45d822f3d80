package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
)

func newExportCommand(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "export [NODE...]",
		Short: "Write all records as one YAML stream",
		Long: `Write all records, or those of some nodes, as one YAML stream: for a backup, or to
move to another cluster. Nothing but what the API server sets is left out.

A record that cannot be read is not exported: the exit code is 1 then.`,
		Example: `  # a backup
  kubectl nodekeeper export > records.yaml

  # to another cluster
  kubectl nodekeeper export --context=old | kubectl nodekeeper import -f - --context=new`,
		ValidArgsFunction: p.names(0, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.export(cmd.Context(), args) },
	}
}

func (p *plugin) export(ctx context.Context, args []string) error {
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	uid, err := byhand.ClusterUID(ctx, c.Client)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	var errs []error
	shown, n := output.NewProgress(p.ErrOut), 0
	var printer printers.YAMLPrinter
	err = c.Records().Each(ctx, func(cm *corev1.ConfigMap) error {
		if len(names) > 0 && !missing[cm.Name] {
			return nil
		}
		saved := inspect.ParseSaved(cm)
		if saved.Floor.Object != nil {
			return nil // a floor
		}
		delete(missing, cm.Name)
		if err := saved.Unreadable; err != nil {
			errs = append(errs, fmt.Errorf("%q is not exported: %w", cm.Name, err))
			return nil
		}
		n++
		if !output.IsTerminal(p.Out) {
			shown.Show("Exported %s", amount.Of(n, "record"))
		}
		return printer.PrintObj(byhand.Exported(cm, uid), p.Out)
	})
	shown.Done()
	for _, name := range names {
		if missing[name] {
			errs = append(errs, fmt.Errorf("no labels are saved for node %q", name))
		}
	}
	if n == 0 && len(names) == 0 && err == nil && len(errs) == 0 {
		_, _ = fmt.Fprintf(p.ErrOut, "No records found in namespace %s.\n", c.MetadataNamespace)
	}
	return errors.Join(append(errs, err)...)
}
