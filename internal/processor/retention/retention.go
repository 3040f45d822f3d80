package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/processor/retention/removal"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
)

// Each record is checked ten times per retention time, within these bounds.
const (
	minPeriod = time.Second
	maxPeriod = 10 * time.Minute
)

// gapPeriods bounds the periods between two sweeps: a processor may be replaced, and may miss a
// sweep after an error.
const gapPeriods = 3

// floorAge is how long a floor is kept: far longer than a watcher can lag behind.
const floorAge = 24 * time.Hour

// Retention removes the records of nodes that stay away. All fields are required.
type Retention struct {
	// Client reads and writes without a cache.
	Client client.Client
	Nodes  *nodes.Nodes
	// Records are listed from the cache.
	Records *records.Records
	Remover *removal.Remover
	// After is how long a node must be away before its record is removed.
	After time.Duration
	// Identity is the name of this process.
	Identity string
}

// Register adds the sweeps to the manager.
func (r *Retention) Register(mgr manager.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(r.Run)); err != nil {
		return fmt.Errorf("adding the retention of records: %w", err)
	}
	return nil
}

// Run sweeps until ctx is cancelled.
func (r *Retention) Run(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := r.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Sweeping records failed, retrying in the next sweep")
		}
	}, r.period(), 0.1, true)
	return nil
}

func (r *Retention) period() time.Duration { return min(max(r.After/10, minPeriod), maxPeriod) }

func (r *Retention) maxGap() time.Duration { return gapPeriods * r.period() }

// Sweep checks once which nodes are away, and removes the records of nodes that have been away for
// long enough.
func (r *Retention) Sweep(ctx context.Context, now time.Time) error {
	live := map[string]bool{}
	err := r.Nodes.Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		live[n.Name] = true
		return nil
	})
	if err != nil {
		return err
	}
	observed, err := r.noteSweep(ctx, now)
	if errors.Is(err, errRaced) {
		return nil // the other processor sweeps
	}
	if err != nil {
		return err
	}
	if observed.since.Equal(observed.last) {
		logf.FromContext(ctx).Info("Restarted all absence periods: no recent sweep, or clock skew", "maxGap", r.maxGap().String())
	}
	var errs []error
	err = r.Records.EachCached(ctx, func(cm *corev1.ConfigMap) {
		if err := r.retain(ctx, cm, live[cm.Name], observed, now); err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(append(errs, err)...)
}

// retain notes when the node of a record was first found away, or removes the record if that is
// long enough ago.
func (r *Retention) retain(ctx context.Context, cm *corev1.ConfigMap, live bool, observed observation, now time.Time) error {
	text, noted := cm.Annotations[record.AwaySinceAnnotation]
	switch {
	case live && noted:
		return r.noteAway(ctx, cm, nil)
	case live:
		return nil
	}
	saved, err := record.Parse(cm)
	if err != nil {
		return nil //nolint:nilerr // an unreadable record is never removed, but must be corrected
	}
	if saved.Floor {
		return r.collectFloor(ctx, cm, saved, observed, now)
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil { // not noted, or edited by hand: start now
		return r.noteAway(ctx, cm, new(now.UTC().Format(time.RFC3339Nano)))
	}
	if observed.absent(since, now) < r.After {
		return nil
	}
	outcome, err := r.Remover.Remove(ctx, cm)
	switch {
	case err != nil:
		return err
	case outcome == removal.Removed:
		logf.FromContext(ctx).Info("Removed the record of a node that stayed away", "node", cm.Name, "retention", r.After.String())
	case outcome == removal.Returned:
		logf.FromContext(ctx).Info("Restored the record of a node that returned during its removal", "node", cm.Name)
	}
	return nil
}

// noteAway sets the start of the absence, or removes it if since is nil, conditional on the cached
// record.
func (r *Retention) noteAway(ctx context.Context, cm *corev1.ConfigMap, since *string) error {
	err := r.Records.Annotate(ctx, cm, map[string]*string{record.AwaySinceAnnotation: since})
	if errors.Is(err, records.ErrStale) {
		return nil // the next sweep reads the new state
	}
	return err
}

// collectFloor removes a floor that is too old to be needed for a late event.
func (r *Retention) collectFloor(ctx context.Context, cm *corev1.ConfigMap, floor *record.Record, observed observation, now time.Time) error {
	if observed.absent(floor.SavedAt, now) < floorAge {
		return nil
	}
	err := r.Records.Remove(ctx, records.Stored{Object: cm})
	if errors.Is(err, records.ErrStale) {
		return nil // the node has a record again
	}
	return err
}
