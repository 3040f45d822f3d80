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
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/processor/retention/removal"
)

// A record is looked at ten times in a retention time, within these bounds.
const (
	minPeriod = time.Second
	maxPeriod = 10 * time.Minute
)

// gapPeriods is how many periods may pass between two looks: a processor may be replaced, and miss
// a sweep after an error.
const gapPeriods = 3

// floorAge is how long a floor stays: far longer than a watcher can be behind.
const floorAge = 24 * time.Hour

// Retention removes the records of nodes that stay away. All fields are required.
type Retention struct {
	// Client reads and writes the API server itself.
	Client client.Client
	Nodes  *nodes.Nodes
	// Records are listed from its cache.
	Records *records.Records
	Remover *removal.Remover
	// After is how long a node must have been away.
	After time.Duration
	// Identity names this process.
	Identity string
}

// Register makes the manager run the sweeps.
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
			logf.FromContext(ctx).Error(err, "Sweeping records failed, trying again in the next round")
		}
	}, r.period(), 0.1, true)
	return nil
}

func (r *Retention) period() time.Duration { return min(max(r.After/10, minPeriod), maxPeriod) }

func (r *Retention) maxGap() time.Duration { return gapPeriods * r.period() }

// Sweep looks once for nodes that are away, and removes the records of those that have been away
// for long enough.
func (r *Retention) Sweep(ctx context.Context, now time.Time) error {
	live := map[string]bool{}
	err := r.Nodes.Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		live[n.Name] = true
		return nil
	})
	if err != nil {
		return err
	}
	looked, err := r.look(ctx, now)
	if errors.Is(err, errRaced) {
		return nil // it sweeps, too
	}
	if err != nil {
		return err
	}
	if looked.since.Equal(looked.last) {
		logf.FromContext(ctx).Info("Counting the absence of all nodes from now on: nobody has looked, or a clock is wrong", "maxGap", r.maxGap().String())
	}
	var errs []error
	err = r.Records.EachCached(ctx, func(cm *corev1.ConfigMap) {
		if err := r.retain(ctx, cm, live[cm.Name], looked, now); err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(append(errs, err)...)
}

// retain notes since when the node of a record is away, or removes the record when that is long
// enough ago.
func (r *Retention) retain(ctx context.Context, cm *corev1.ConfigMap, live bool, looked observation, now time.Time) error {
	text, noted := cm.Annotations[record.AwaySinceAnnotation]
	switch {
	case live && noted:
		return r.noteAway(ctx, cm, nil)
	case live:
		return nil
	}
	saved, err := record.Parse(cm)
	if err != nil {
		return nil //nolint:nilerr // somebody has to correct it: never removed
	}
	if saved.Floor {
		return r.collectFloor(ctx, cm, saved, looked, now)
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil { // not noted, or edited by hand: it counts from now
		return r.noteAway(ctx, cm, new(now.UTC().Format(time.RFC3339Nano)))
	}
	if looked.absent(since, now) < r.After {
		return nil
	}
	outcome, err := r.Remover.Remove(ctx, cm)
	switch {
	case err != nil:
		return err
	case outcome == removal.Removed:
		logf.FromContext(ctx).Info("Removed the record of a node that stayed away", "node", cm.Name, "retention", r.After.String())
	case outcome == removal.Returned:
		logf.FromContext(ctx).Info("Put back the record of a node that returned when it was removed", "node", cm.Name)
	}
	return nil
}

// noteAway sets since when the node is away, or with nil removes that, conditional on the record
// that was seen.
func (r *Retention) noteAway(ctx context.Context, cm *corev1.ConfigMap, since *string) error {
	err := r.Records.Annotate(ctx, cm, map[string]*string{record.AwaySinceAnnotation: since})
	if errors.Is(err, records.ErrStale) {
		return nil // the next sweep sees what it is now
	}
	return err
}

// collectFloor removes a floor that no event from before can need any more.
func (r *Retention) collectFloor(ctx context.Context, cm *corev1.ConfigMap, floor *record.Record, looked observation, now time.Time) error {
	if looked.absent(floor.SavedAt, now) < floorAge {
		return nil
	}
	err := r.Records.Remove(ctx, records.Stored{Object: cm})
	if errors.Is(err, records.ErrStale) {
		return nil // the node has a record since
	}
	return err
}
