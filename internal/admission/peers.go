package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/settings"
	"nodekeeper.dev/sharding/shardlease"
)

// processors is the name of the ring of the processors.
const processors = "processor"

// errDiffers means that processors restore with other flags than the webhook.
var errDiffers = errors.New("the processors have another value of --")

// Peers compares the settings of a webhook with those that the processors publish on their Leases.
// While these differ, the labels of an answer might not be those of a restore, and the marker would
// keep the processors from correcting them. All fields are required. It is safe for concurrent use.
type Peers struct {
	// Leases reads from a cache as [LeasesOfProcessors] describes it.
	Leases    client.Reader
	Namespace string
	// Settings are the webhook's own.
	Settings settings.Settings
}

// LeasesOfProcessors returns what a cache needs to have of a namespace for [Peers].
func LeasesOfProcessors(namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {
			Label:      labels.SelectorFromSet(labels.Set{ring.Label: processors}),
			Namespaces: map[string]cache.Config{namespace: {}},
		},
	}
}

// Differing returns the names of the flags that the webhook shares with processors and of which one
// of these has another value, sorted. Processors that publish nothing, as those of earlier releases,
// do not count, nor do those that have ended. It returns an error if the settings of any processor
// cannot be read.
func (p *Peers) Differing(ctx context.Context) ([]string, error) {
	var leases coordinationv1.LeaseList
	if err := p.Leases.List(ctx, &leases, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading the Leases of the processors: %w", err)
	}
	var names []string
	for i := range leases.Items {
		l := &leases.Items[i]
		// A Lease that is no longer renewed counts until somebody deletes it: no clocks are compared.
		if l.Labels[ring.Label] != processors || !shardlease.StateOf(l, 0, 0).Member() {
			continue
		}
		theirs, err := settings.Parse(l.Annotations)
		if err != nil {
			return nil, fmt.Errorf("reading the settings of processor %s: %w", l.Name, err)
		}
		names = append(names, p.Settings.Differing(theirs)...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// differs returns an error that names the flags, or nil if there are none.
func differs(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w%s", errDiffers, strings.Join(names, ", --"))
}
