package inspect

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taintReads is the number of Nodes that are read at a time for their taints.
const taintReads = 10

// Closed is a Node that has the startup taint, and not the marker for which processors look.
type Closed struct {
	Name string
	// Since is when taints of the Node were last set, or later.
	Since metav1.Time
}

// ClosedWithoutMarker returns such nodes of a survey by name. It reads each Node that has taints,
// because the metadata of Nodes does not contain their keys.
func (c *Cluster) ClosedWithoutMarker(ctx context.Context, s *Survey) ([]Closed, error) {
	var mu sync.Mutex
	var closed []Closed
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(taintReads)
	for name, n := range s.live {
		if n.taintsSetAt == nil || !n.isMatched {
			continue
		}
		reads.Go(func() error {
			isClosed, err := c.Nodes().HasStartupTaint(ctx, name, n.live.uid)
			if isClosed {
				mu.Lock()
				defer mu.Unlock()
				closed = append(closed, Closed{name, *n.taintsSetAt})
			}
			return err //nolint:wrapcheck // it has the context already
		})
	}
	err := reads.Wait()
	slices.SortFunc(closed, func(a, b Closed) int { return cmp.Compare(a.Name, b.Name) })
	return closed, err //nolint:wrapcheck // it has the context already
}
