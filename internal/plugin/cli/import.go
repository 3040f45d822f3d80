package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

type importOptions struct {
	named     []string
	from      string
	overwrite bool
	dryRun    dryRun
	timeout   time.Duration
}

func newImportCommand(p *plugin) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import {-f FILE | --from kube-state-rs}",
		Short: "Import exported records",
		Long: `Import records that kubectl nodekeeper export has written. All of them are
checked before the first is stored. Existing records are not replaced unless you
give --overwrite. Of each object, only the name, labels, annotations and data are
taken.

Records of this cluster come back as they were. Only the labels of those of
another cluster are imported, and what people have written on the record:
resourceVersions and uids of one cluster mean nothing in another. They are like
labels that you set by hand now (see kubectl nodekeeper set): the next node of
that name that appears gets them. The same goes for records of this cluster that
are of a later time than it has, as after a restore of etcd, and for those that
are earlier than the records that they replace.

A node that exists and has had its labels keeps what it has now, since people
have changed or removed what differs, and that is saved. One that never had them
gets them at once, except what people have set on it since it was created. With
--overwrite, all get the labels of the records.

With --from kube-state-rs, this takes over the labels that kube-state-rs has saved,
from its ConfigMaps in the cluster, which become records, or from those in a file.
A node that exists keeps the labels that it has, and what nodekeeper has recorded
of a node is later than what kube-state-rs has saved. The labels that are not taken
over are printed. Stop kube-state-rs first.`,
		Example: `  # what would be done?
  kubectl nodekeeper import -f records.yaml --dry-run=server

  # import them, and replace existing records
  kubectl nodekeeper import -f records.yaml --overwrite

  # take over what kube-state-rs has saved in this cluster
  kubectl nodekeeper import --from kube-state-rs`,
		Args: o.checkArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.from != "" {
				return p.takeOver(cmd.Context(), &o, o.files(args))
			}
			return p.importFile(cmd.Context(), &o, o.files(args)[0])
		},
	}
	cmd.Flags().StringArrayVarP(&o.named, "filename", "f", nil, "The `file`, or - for standard input.")
	cmd.Flags().StringVar(&o.from, "from", "", "The `program` whose saved labels to take over: kube-state-rs.")
	command.CompleteFlag(cmd, "from", string(record.KubeStateRS))
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "Replace existing records, and the labels of nodes that exist.")
	addDryRunFlag(cmd, &o.dryRun)
	addTimeoutFlag(cmd, &o.timeout)
	return cmd
}

func (o *importOptions) checkArguments(cmd *cobra.Command, args []string) error {
	files := o.files(args)
	switch {
	case o.from != "" && o.from != string(record.KubeStateRS):
		return fmt.Errorf("--from: unknown program %q: use %s", o.from, record.KubeStateRS)
	case len(files) > 1 || len(files) == 0 && o.from == "":
		return fmt.Errorf("give one file, or - to read standard input: %s", command.Synopsis(cmd))
	}
	return nil
}

// files returns the files in the flag and in the arguments.
func (o *importOptions) files(args []string) []string {
	return slices.DeleteFunc(slices.Concat(o.named, args), func(file string) bool { return file == "" })
}

func (p *plugin) importFile(ctx context.Context, o *importOptions, file string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	records, err := p.readRecords(file)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, true)
	if err != nil {
		return err
	}
	all, err := byhand.PrepareImports(ctx, &c.Cluster, records, o.overwrite)
	if err != nil {
		return err
	}
	owed, kept, err := p.storeImports(ctx, o, c, all)
	if err != nil || o.dryRun.Dry() {
		return err
	}
	appeared, err := byhand.Appeared(ctx, &c.Cluster, all)
	if err != nil {
		return err
	}
	save := requesting{dryRun: o.dryRun, Requests: byhand.Requests{Type: txn.Updated, Done: "saved", Timeout: o.timeout}}
	return errors.Join(p.restoreImported(ctx, o, c, servers, append(owed, appeared...)), save.runAny(ctx, p, c, servers, kept))
}

// storeImports stores records, and prints what each does. Of the live nodes, it returns the names of
// the owed, which get the labels of their records, and of the kept, which keep their own labels.
func (p *plugin) storeImports(ctx context.Context, o *importOptions, c *cluster, all []byhand.Import) (owed, kept []string, err error) {
	shown := output.NewProgress(p.ErrOut)
	for i := range all {
		shown.Show("Importing: %d of %d", i+1, len(all))
		done, err := all[i].Store(ctx, &c.Cluster, o.dryRun.DryRun)
		shown.Done()
		if err != nil {
			return nil, nil, fmt.Errorf("%w (%d of %d records were taken in before; to go on, give the same file once more)", err, i, len(all))
		}
		effect := ""
		switch {
		case all[i].Owed():
			owed, effect = append(owed, all[i].Name), "; it is live and gets the labels of the record"
			if !o.overwrite {
				effect += ", except what users have set since it was created"
			}
		case all[i].Kept():
			kept, effect = append(kept, all[i].Name), "; it is live and keeps its own labels, which are saved"
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s %s%s%s\n", all[i].Name, done, effect, o.dryRun.suffix())
	}
	return owed, kept, nil
}

// restoreImported restores the imported labels of nodes that are there.
func (p *plugin) restoreImported(ctx context.Context, o *importOptions, c *cluster, servers *serving, owed []string) error {
	restore := requesting{dryRun: o.dryRun, Requests: byhand.Requests{
		Type: txn.Added, Done: "restored", Timeout: o.timeout, IgnoreMissingEnd: true, KeepsEdits: !o.overwrite,
	}}
	return restore.runAny(ctx, p, c, servers, owed)
}

// readFile calls read with a file, or with standard input if its name is -.
func (p *plugin) readFile(file string, read func(io.Reader) error) error {
	from := p.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it is only read
		from = f
	}
	if err := read(from); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

func (p *plugin) readRecords(file string) ([]*corev1.ConfigMap, error) {
	var records []*corev1.ConfigMap
	err := p.readFile(file, func(from io.Reader) (err error) {
		records, err = byhand.ReadExported(from)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("reading %s: there is no record in it", file)
	}
	return records, nil
}
