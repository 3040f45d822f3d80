package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/sharding/shardlease"
)

// processors is the name of the ring of the processors.
const processors = "processor"

// errDiffers means that a processor has different flags than the webhook.
var errDiffers = errors.New("the processors have another value of --")

// Peers compares the settings of a webhook with the settings that processors publish on their
// Leases. While they differ, the labels of an answer may differ from the labels of a restore, and
// the marker would keep the processors from correcting them. All exported fields are required. It
// is safe for concurrent use.
type Peers struct {
	// Leases reads from a cache that is configured by [LeasesOfProcessors].
	Leases    client.Reader
	Namespace string
	// Settings are the webhook's own.
	Settings settings.Settings

	mu sync.Mutex
	// compared caches the comparisons of the last call by the published text. The texts hardly ever
	// change, and parsing one takes a tenth of the time of an answer.
	compared map[string]comparison
}

// comparison is the result of comparing one text.
type comparison struct {
	differing []string
	err       error
}

// LeasesOfProcessors configures a cache for [Peers].
func LeasesOfProcessors(namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {
			Label:      labels.SelectorFromSet(labels.Set{ring.Label: processors}),
			Namespaces: map[string]cache.Config{namespace: {}},
		},
	}
}

// Differing returns the names of the flags whose value differs between the webhook and at least one
// processor, sorted. It ignores processors that have ended, and processors of earlier releases,
// which publish no settings. It returns an error if the settings of any processor cannot be read.
func (p *Peers) Differing(ctx context.Context) ([]string, error) {
	var leases coordinationv1.LeaseList
	if err := p.Leases.List(ctx, &leases, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading the Leases of the processors: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.compared
	p.compared = make(map[string]comparison, len(before))
	var names []string
	for i := range leases.Items {
		l := &leases.Items[i]
		// A Lease that is no longer renewed counts until it is deleted, so that clocks need not be
		// compared.
		if l.Labels[ring.Label] != processors || !shardlease.StateOf(l, 0, 0).Member() {
			continue
		}
		text := l.Annotations[settings.Annotation]
		c, ok := before[text]
		if !ok {
			c = p.compare(l.Annotations)
		}
		p.compared[text] = c
		if c.err != nil {
			return nil, fmt.Errorf("reading the settings of processor %s: %w", l.Name, c.err)
		}
		names = append(names, c.differing...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (p *Peers) compare(annotations map[string]string) comparison {
	theirs, err := settings.Parse(annotations)
	return comparison{p.Settings.Differing(theirs), err}
}

// differs returns an error that names the flags, or nil if there are none.
func differs(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w%s", errDiffers, strings.Join(names, ", --"))
}
