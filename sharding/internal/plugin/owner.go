package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/sharding/internal/ringview"
)

// owners is the data of owner.
type owners struct {
	Object ringview.Object      `json:"object"`
	Rings  []ringview.Ownership `json:"rings"`
}

// shardPrefix precedes the names of shards in -o name: a shard has the name of its Lease.
const shardPrefix = "lease.coordination.k8s.io/"

func newOwnerCommand(p *plugin) *cobra.Command {
	var out output.Flags
	var ring string
	cmd := &cobra.Command{
		Use:   "owner (TYPE NAME | TYPE/NAME)",
		Short: "Show which shard has an object, and why",
		Long: `Show which shard of a ring has an object, and why: the key and the slot of the
object, the shard that the table has the slot at, the labels of the object,
whether they agree, and what the sharder does next. The namespace is that of -n,
or of the kubeconfig's context.

The state of the object is one of
  assigned     its shard acts on it
  misplaced    its shard acts on it, and the table has it at another one
  draining     its shard acts on it, and is asked to give it to another one
  parked       its shard has given it away, and no other one has it yet
  orphaned     its shard is gone, and no other one has it yet
  unassigned   it has never had a shard
  excluded     it does not belong to the ring

An object of a controlled resource follows the object that controls it.`,
		Example: `  # which shard has a Secret
  kubectl rings owner secret/s1

  # the same in another namespace, by one ring of several
  kubectl rings owner websites.web.example.com shop -n team-a --ring=website

  # the log of the pod that works on it
  kubectl logs -n web-system "$(kubectl rings owner secret/s1 -o jsonpath='{.rings[0].owner}')"`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, _, err := objectNamed(args)
			if err != nil {
				return fmt.Errorf("%w: %s", err, command.Synopsis(cmd))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.owner(cmd.Context(), &out, strings.TrimPrefix(ring, ringPrefix), args)
		},
	}
	out.AddFlags(cmd)
	cmd.Flags().StringVar(&ring, "ring", "", "Ring to ask, if not all that have the resource.")
	_ = cmd.RegisterFlagCompletionFunc("ring", func(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.completeRing()(cmd, nil, begin)
	})
	return cmd
}

// objectNamed returns the resource and the name in arguments that kubectl accepts.
func objectNamed(args []string) (resource, name string, err error) {
	switch len(args) {
	case 1:
		var ok bool
		if resource, name, ok = strings.Cut(args[0], "/"); !ok {
			return "", "", errors.New("give the type and the name of an object")
		}
	case 2:
		resource, name = args[0], args[1]
	default:
		return "", "", errors.New("give the type and the name of one object")
	}
	if resource == "" || name == "" || strings.ContainsAny(resource+name, "/,") {
		return "", "", fmt.Errorf("%q is not the type and the name of one object", strings.Join(args, " "))
	}
	return resource, name, nil
}

func (p *plugin) owner(ctx context.Context, out *output.Flags, ring string, args []string) error {
	resource, name, err := objectNamed(args)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	mapping, err := mappingOf(c.Mapper, resource)
	if err != nil {
		return err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if namespace, _, err = p.Connection.ToRawKubeConfigLoader().Namespace(); err != nil {
			return fmt.Errorf("reading the namespace of the context: %w", err)
		}
	}
	object, rings, err := c.Owners(ctx, ring, mapping, namespace, name)
	if err != nil {
		return explainObject(err, mapping, namespace, name, ring)
	}
	if len(rings) == 0 {
		return fmt.Errorf("no ring has the resource %s: add it to spec.resources of a ring, or to controlledResources there", mapping.Resource.GroupResource())
	}
	v := output.View{Kind: "Ownership", Data: &owners{object, rings}, NamePrefix: shardPrefix}
	for _, r := range rings {
		if r.Owner != "" {
			v.Names = append(v.Names, r.Owner)
		}
	}
	v.Text = func(w io.Writer) { writeOwners(w, mapping, object, rings, time.Now()) }
	return out.Print(p.Out, v)
}

// mappingOf returns the resource that the API server serves under a name that kubectl accepts: a plural,
// a singular or a short name, with its group if the name is ambiguous.
func mappingOf(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, groupResource := schema.ParseResourceArg(name)
	var found schema.GroupVersionResource
	var err error
	if full != nil {
		found, err = mapper.ResourceFor(*full)
	}
	if full == nil || err != nil {
		found, err = mapper.ResourceFor(groupResource.WithVersion(""))
	}
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the API server does not serve the resource %q: see kubectl api-resources", name)
	}
	if err != nil {
		return nil, fmt.Errorf("finding out the resource %q: %w", name, err)
	}
	kind, err := mapper.KindFor(found)
	if err != nil {
		return nil, fmt.Errorf("finding out the kind of %s: %w", found.GroupResource(), err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("finding out the resource of kind %s: %w", kind.Kind, err)
	}
	return mapping, nil
}

func writeOwners(w io.Writer, mapping *meta.RESTMapping, object ringview.Object, rings []ringview.Ownership, now time.Time) {
	line := output.Lines(w)
	line("Object", "%s", objectPath(mapping.Resource.GroupResource().String(), object.Namespace, object.Name))
	for _, r := range rings {
		if len(rings) > 1 {
			_, _ = fmt.Fprintln(w)
		}
		writeOwner(line, &r, now)
	}
}

func writeOwner(line output.LineFunc, r *ringview.Ownership, now time.Time) {
	line("Ring", "%s", r.Ring)
	line("Owner", "%s", output.OrNone(r.Owner))
	line("State", "%s", r.State)
	if r.Main != nil {
		line("Controlled by", "%s, at %s", objectPath(r.Main.Resource, r.Main.Namespace, r.Main.Name), output.OrNone(r.Main.Shard))
	}
	if r.Slot != nil {
		line("Key", "%s", r.Key)
		line("Slot", "%d", *r.Slot)
		table := output.OrNone(r.Table)
		if r.TableNext != "" {
			table += ", next " + r.TableNext
		}
		line("Table", "%s (generation %d)", table, r.TableGeneration)
	}
	line("Labels", "%s", describeLabels(r, now))
	agrees := "yes"
	if !r.Agrees {
		agrees = "no"
	}
	line("Agrees", "%s", agrees)
	line("Why", "%s", r.Why)
	if r.Next != "" {
		line("Next", "%s", r.Next)
	}
}

func describeLabels(r *ringview.Ownership, now time.Time) string {
	var all []string
	if r.Shard != nil {
		all = append(all, "shard="+*r.Shard)
	}
	if r.Drain != nil {
		text := "drain=" + *r.Drain
		if r.DrainedAt != nil {
			text += " for " + output.AgeOf(r.DrainedAt, now)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return output.None
	}
	return strings.Join(all, ", ")
}

// objectPath names an object: "secrets default/s1".
func objectPath(resource, namespace, name string) string {
	if namespace == "" {
		return resource + " " + name
	}
	return resource + " " + namespace + "/" + name
}
