package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

type importOptions struct {
	mayOverwrite bool
	dryRun       dryRun
	timeout      time.Duration
}

func newImportCommand(p *plugin) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE | -",
		Short: "Take in records that were exported",
		Long: `Take in records that kubectl nodekeeper export has written. All of them are
checked before the first is stored, and one that there is already is not
overwritten, unless you say so.

Records of this cluster come back as they were. Of those of another cluster the
labels come, and what people have written on the record: resourceVersions and
uids of one cluster mean nothing in another. So they are like labels that are
given by hand now (see kubectl nodekeeper set): the next node of that name that
appears gets them. The same goes for records of this cluster that are of a
later time than it has, as after a restore of etcd.

Nodes that are there, and have not the labels of the record that is taken in,
get them at once, as if they had just appeared.`,
		Example: `  # what would be done?
  kubectl nodekeeper import records.yaml --dry-run=server

  # take them in, and replace what there is
  kubectl nodekeeper import records.yaml --overwrite`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("give one file, or - for what comes by a pipe: %s", usage(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.importFile(cmd.Context(), &o, args[0]) },
	}
	cmd.Flags().BoolVar(&o.mayOverwrite, "overwrite", false, "Replace records that there are.")
	addDryRunFlag(cmd, &o.dryRun)
	addTimeoutFlag(cmd, &o.timeout)
	return cmd
}

// importing is one record on its way into the cluster.
type importing struct {
	wanted *corev1.ConfigMap
	record *record.Record
	// IsGiven says that only the labels are taken, and what people wrote.
	isGiven bool
	// There is what the cluster has of that node.
	there *inspect.Node
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
	all, err := o.prepare(ctx, c, records)
	if err != nil {
		return err
	}
	shown := newProgress(p.ErrOut)
	var owed []string
	for i := range all {
		shown.show("Importing: %d of %d", i+1, len(all))
		done, err := o.store(ctx, c, &all[i])
		shown.done()
		if err != nil {
			return fmt.Errorf("%w (%d of %d records were taken in before; to go on, give the same file once more)", err, i, len(all))
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s %s%s\n", all[i].wanted.Name, done, o.dryRun.suffix())
		if all[i].isOwed() {
			owed = append(owed, all[i].wanted.Name)
		}
	}
	if len(owed) == 0 || o.dryRun.isDry() {
		return nil
	}
	restore := byHand{typ: txn.Added, done: "restored", timeout: o.timeout, policy: labels.Policy{Mode: labels.Replace}}
	return restore.apply(ctx, p, c, owed)
}

func (p *plugin) readRecords(file string) ([]*corev1.ConfigMap, error) {
	from := p.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the file that people name
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it is only read
		from = f
	}
	records, err := readExported(from)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("reading %s: there is no record in it", file)
	}
	return records, nil
}

// prepare returns what is to be stored, or an error if any of it cannot be.
func (o *importOptions) prepare(ctx context.Context, c *cluster, records []*corev1.ConfigMap) ([]importing, error) {
	here, err := c.clusterUID(ctx)
	if err != nil {
		return nil, err
	}
	isWanted := map[string]bool{}
	for _, cm := range records {
		isWanted[cm.Name] = true
	}
	nodes, err := c.Nodes(ctx, func(name string) bool { return isWanted[name] })
	if err != nil {
		return nil, err
	}
	now, err := c.Now(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]importing, len(records))
	var taken []string
	for i, cm := range records {
		all[i] = newImporting(cm, nodes[cm.Name], here, now)
		all[i].wanted.Namespace = c.MetadataNamespace
		if all[i].there.Saved.Object != nil && !all[i].isThere() {
			taken = append(taken, cm.Name)
		}
	}
	if len(taken) > 0 && !o.mayOverwrite {
		return nil, fmt.Errorf("there are other records already of %s: nothing is done; give --overwrite to replace them", abbreviate(taken))
	}
	return all, nil
}

// newImporting returns an exported record as this cluster is to have it.
func newImporting(cm *corev1.ConfigMap, there *inspect.Node, here types.UID, now string) importing {
	if there == nil {
		there = &inspect.Node{Name: cm.Name}
	}
	wanted := cm.DeepCopy()
	origin := types.UID(wanted.Annotations[exportedFromAnnotation])
	delete(wanted.Annotations, exportedFromAnnotation)
	delete(wanted.Annotations, record.AwaySinceAnnotation)
	i := importing{wanted: wanted, there: there, record: inspect.ParseSaved(cm).Record} // it was read before, so it can be
	if r := i.record; origin != here || isAfter(r.Version, now) || isAfter(r.Restored.ResourceVersion, now) {
		given := preserve.Given(r.Node, r.Labels, now)
		given.SavedAt = r.SavedAt
		given.Write(wanted)
		i.record, i.isGiven = &given, true
	}
	return i
}

// isThere says whether the record is in the cluster already: just so, or, if only the labels count, with these labels.
func (i *importing) isThere() bool {
	has := i.there.Saved
	switch {
	case has.Object == nil || !maps.Equal(has.Object.Labels, i.wanted.Labels):
		return false
	case i.isGiven:
		return has.Record != nil && maps.Equal(has.Record.Labels, i.record.Labels) &&
			maps.Equal(ofPeople(has.Object.Annotations), ofPeople(i.wanted.Annotations))
	}
	return maps.Equal(has.Object.Data, i.wanted.Data) && len(has.Object.BinaryData) == 0 && maps.Equal(has.Object.Annotations, i.wanted.Annotations)
}

// isOwed says whether the Node that is there is to get the labels.
func (i *importing) isOwed() bool {
	r := i.record
	if i.isThere() {
		r = i.there.Saved.Record
	}
	live := i.there.Live
	return live != nil && !preserve.Owned(*r, live.UID, live.Labels[labels.Marker])
}

// ofPeople returns the annotations of a record that are not nodekeeper's.
func ofPeople(annotations map[string]string) map[string]string {
	own := maps.Clone(annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return strings.HasPrefix(key, "nodekeeper.dev/") })
	return own
}

// store stores a record: a new one conditional on its name, another one conditional on the one that was read.
func (o *importOptions) store(ctx context.Context, c *cluster, i *importing) (done string, err error) {
	has := i.there.Saved.Object
	switch {
	case has == nil:
		done = "imported"
		if o.dryRun != dryRunClient {
			err = o.dryRun.writer(c).Create(ctx, i.wanted)
		}
	case i.isThere():
		return "unchanged", nil
	default:
		done = "replaced"
		replaced := has.DeepCopy()
		replaced.Labels, replaced.Annotations, replaced.Data, replaced.BinaryData = i.wanted.Labels, i.wanted.Annotations, i.wanted.Data, nil
		if o.dryRun != dryRunClient {
			err = o.dryRun.writer(c).Update(ctx, replaced)
		}
	}
	switch {
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && has != nil:
		return "", fmt.Errorf("node %q: %w", i.wanted.Name, errChanged)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no namespace %q: install nodekeeper, or create it: %w", c.MetadataNamespace, err)
	case err != nil:
		return "", fmt.Errorf("storing the record of node %q: %w", i.wanted.Name, err)
	}
	return done, nil
}
