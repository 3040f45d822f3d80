package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/grace"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// A record is looked at ten times in a retention time, within these bounds.
const (
	minRetentionPeriod = time.Second
	maxRetentionPeriod = 10 * time.Minute
)

const (
	// lookPeriod is the time between two attempts at the look after the removal of a record.
	lookPeriod = 200 * time.Millisecond
	// lookLimit bounds them when the processor is told to end. With the release of the lock it stays within
	// the five seconds that a service has for that.
	lookLimit = time.Second
)

// sweepRecords removes the records of nodes that have been away for the retention time, until ctx is cancelled.
func (p *Processor) sweepRecords(ctx context.Context) error {
	period := min(max(p.retention/10, minRetentionPeriod), maxRetentionPeriod)
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := p.sweepRecordsOnce(ctx, time.Now()); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Sweeping records failed, trying again in the next round")
		}
	}, period, 0.1, true)
	return nil
}

func (p *Processor) sweepRecordsOnce(ctx context.Context, now time.Time) error {
	live, err := p.liveNodes(ctx)
	if err != nil {
		return err
	}
	var records corev1.ConfigMapList
	if err := p.records.cache.List(ctx, &records, client.InNamespace(p.records.namespace)); err != nil {
		return fmt.Errorf("listing the records: %w", err)
	}
	var errs []error
	for i := range records.Items {
		cm := &records.Items[i]
		if _, err := record.Parse(cm); err != nil {
			continue // not a record, or one that somebody is to mend: never removed
		}
		if err := p.retain(ctx, cm, live[cm.Name], now); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// retain notes since when the node of a record is away, or removes the record when that is long enough ago.
func (p *Processor) retain(ctx context.Context, cm *corev1.ConfigMap, isLive bool, now time.Time) error {
	text, isNoted := cm.Annotations[record.AwaySinceAnnotation]
	switch {
	case isLive && isNoted:
		return p.noteAway(ctx, cm, nil)
	case isLive:
		return nil
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil { // not noted, or edited by hand: it counts from now
		return p.noteAway(ctx, cm, new(now.UTC().Format(time.RFC3339Nano)))
	}
	if now.Sub(since) < p.retention {
		return nil
	}
	err = p.locks.Do(ctx, cm.Name, func(locked context.Context) error {
		isTried, err := p.expire(locked, cm)
		if isTried { // whatever becomes of the lock
			err = errors.Join(err, p.putBackUnlessAway(ctx, cm))
		}
		return err
	})
	if errors.Is(err, nodelock.ErrHeld) {
		return nil // somebody works for this node, so it is not just away
	}
	return err
}

// noteAway sets or, with nil, takes away the time since when the node is away, conditional on the record that was seen.
func (p *Processor) noteAway(ctx context.Context, cm *corev1.ConfigMap, since *string) error {
	err := p.patchMetadata(ctx, cm.DeepCopy(), map[string]any{
		"resourceVersion": cm.ResourceVersion,
		"annotations":     map[string]*string{record.AwaySinceAnnotation: since},
	})
	// Conflict, NotFound: it was written or removed since it was read; the next round sees it anew.
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("noting the absence of node %q: %w", cm.Name, err)
	}
	return nil
}

// expire removes a record, unless a fresh look shows that its node is back, or has transactions. No write can be conditional on
// the absence of a Node, so who has tried it is to look once more: see putBackUnlessAway.
func (p *Processor) expire(ctx context.Context, cm *corev1.ConfigMap) (isTried bool, err error) {
	isAway, err := p.isAway(ctx, cm.Name)
	if err != nil || !isAway {
		return false, err
	}
	err = p.client.Delete(ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
	// Conflict: it was written since, so the node is not just away. NotFound: another removed it.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil { // it may be removed all the same
		return true, fmt.Errorf("removing the record of node %q: %w", cm.Name, err)
	}
	logf.FromContext(ctx).Info("Removed the record of a node that stayed away", "node", cm.Name, "retention", p.retention.String())
	return true, nil
}

// isAway says whether a fresh look finds neither the Node nor a transaction of it.
func (p *Processor) isAway(ctx context.Context, name string) (bool, error) {
	node, err := p.liveNode(ctx, name)
	if err != nil || node != nil {
		return false, err
	}
	if p.hasPending(ctx, name) { // found by its name, should somebody have taken the labels off that the list goes by
		return false, nil
	}
	var queued corev1.ConfigMapList
	err = p.client.List(ctx, &queued, client.InNamespace(p.transactionNamespace), client.MatchingLabels(txn.NodeLabels(name)))
	if err != nil {
		return false, fmt.Errorf("listing the transactions of node %q: %w", name, err)
	}
	return len(queued.Items) == 0, nil
}

// putBackUnlessAway makes a record anew that was removed when its node came back, or had an event. Nobody else knows the labels
// any more, so it tries until it is answered, and for lookLimit after the processor was told to end.
func (p *Processor) putBackUnlessAway(ctx context.Context, cm *corev1.ConfigMap) error {
	longer, cancel := grace.Context(ctx, lookLimit)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(longer, lookPeriod, true, func(ctx context.Context) (bool, error) {
		var isAway bool
		if isAway, last = p.isAway(ctx, cm.Name); last == nil && !isAway {
			last = p.putBack(ctx, cm)
		}
		return last == nil || isRefusal(last), nil
	})
	if err = cmp.Or(last, err); err != nil {
		return fmt.Errorf("looking for node %q once more: %w", cm.Name, err)
	}
	return nil
}

func (p *Processor) putBack(ctx context.Context, cm *corev1.ConfigMap) error {
	again := cm.DeepCopy()
	again.UID, again.ResourceVersion = "", ""
	delete(again.Annotations, record.AwaySinceAnnotation)
	err := p.client.Create(ctx, again)
	if apierrors.IsAlreadyExists(err) {
		return nil // not removed, put back by an attempt whose answer was lost, or made by the node's own event
	}
	if err != nil {
		return fmt.Errorf("putting the record back: %w", err)
	}
	logf.FromContext(ctx).Info("Put back the record of a node that returned when it was removed", "node", cm.Name)
	return nil
}

// liveNodes returns the names of all Nodes.
func (p *Processor) liveNodes(ctx context.Context) (map[string]bool, error) {
	live := map[string]bool{}
	err := p.eachNode(ctx, func(n *metav1.PartialObjectMetadata) { live[n.Name] = true })
	return live, err
}
