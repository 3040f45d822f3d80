package inspect

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/ring/hashring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/sharding/shardlease"
)

// WaitReason is a reason why transactions are not applied yet.
type WaitReason string

// The reasons, by how much they explain.
const (
	// NoProcessor: no processor is ready.
	NoProcessor WaitReason = "NoProcessor"
	// WarningEvent: a program reports a failed attempt.
	WarningEvent WaitReason = "WarningEvent"
	// UnreadableRecord: the record of the node cannot be parsed, and no event reports it.
	UnreadableRecord WaitReason = "UnreadableRecord"
	// Locked: the node is locked.
	Locked WaitReason = "Locked"
	// SaveDelay: saves are coalesced, as none of them is urgent.
	SaveDelay WaitReason = "SaveDelay"
	// Overdue: the owner of the node has not applied them, for an unknown reason.
	Overdue WaitReason = "Overdue"
)

// Waiting explains why the transactions of a node are not applied yet.
type Waiting struct {
	// Reasons are all reasons that apply, by how much they explain.
	Reasons []WaitReason `json:"reasons"`
	// Warning is the last Warning event about the delay.
	Warning *Warning `json:"warning,omitempty"`
	// Advice is what makes an unreadable record readable.
	Advice string `json:"advice,omitempty"`
	// Lock is the lock of the node.
	Lock *HeldLock `json:"lock,omitempty"`
	// Owner is the processor that owns the node on the ring, or empty if none is ready.
	Owner string `json:"owner,omitempty"`
	// Due is the end of the batch period, when a processor may apply the transactions.
	Due *metav1.Time `json:"due,omitempty"`
	// SaveDelay is the batch period of saves.
	SaveDelay metav1.Duration `json:"saveDelay"`
	// SaveDelayAssumed reports whether SaveDelay is the default because that of the processors is
	// unknown.
	SaveDelayAssumed bool `json:"saveDelayAssumed,omitempty"`
	// Period is the total wait of the transactions: SaveDelay, or longer for the end of a node. It
	// is zero for urgent transactions.
	Period metav1.Duration `json:"period"`
	// Ended reports whether the node has ended. Its return may then shorten the period.
	Ended bool `json:"ended,omitempty"`
	// Unknown lists what could not be read because rights are missing.
	Unknown []string `json:"unknown,omitempty"`
}

// HeldLock is the lock of a node.
type HeldLock struct {
	Holder string `json:"holder"`
	// Since is when the holder acquired it, nil if unknown.
	Since *metav1.Time `json:"since,omitempty"`
	// IsExpired reports whether the holder does not renew it, so that the next processor takes it
	// over.
	IsExpired bool `json:"expired"`
}

// evidence is the input of [Cluster.Waiting].
type evidence struct {
	warning *Warning
	locks   []*coordinationv1.Lease
	places  []*coordinationv1.Lease
	// placesUnknown reports whether the Leases of the ring could not be read.
	placesUnknown bool
}

// Waiting returns the reasons why the pending transactions of a node are not applied yet. If none
// are pending, it returns nil and sends no request. A nil saveDelay means that the value of the
// processors is unknown, and stands for the default. Missing rights are not an error: see
// Waiting.Unknown.
func (c *Cluster) Waiting(ctx context.Context, n *Node, saveDelay *time.Duration) (*Waiting, error) {
	if len(n.Pending) == 0 {
		return nil, nil //nolint:nilnil // no waiting transactions are not an error
	}
	var found evidence
	var missing [3]string // by request, in a fixed order
	reads, readCtx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) {
		found.warning, err = c.lastWarning(readCtx, n)
		return unlessForbidden(err, &missing[0], "events: the rights to list them are missing")
	})
	reads.Go(func() (err error) {
		found.locks, err = c.leases(readCtx, c.TransactionNamespace, client.MatchingFields{metav1.ObjectNameField: n.Name})
		return unlessForbidden(err, &missing[1], "the lock: the right to list leases in namespace "+c.TransactionNamespace+" is missing")
	})
	reads.Go(func() (err error) {
		found.places, err = c.leases(readCtx, c.MembershipNamespace)
		found.placesUnknown = apierrors.IsForbidden(err)
		return unlessForbidden(err, &missing[2], "the processors: the right to list leases in namespace "+c.MembershipNamespace+" is missing")
	})
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	w := found.explain(n, saveDelay, c.Now())
	w.Unknown = slices.DeleteFunc(missing[:], func(text string) bool { return text == "" })
	return w, nil
}

// unlessForbidden returns the error, unless a right is missing. Then it sets missing to text.
func unlessForbidden(err error, missing *string, text string) error {
	if apierrors.IsForbidden(err) {
		*missing = text
		return nil
	}
	return err
}

// explain interprets the evidence.
func (e *evidence) explain(n *Node, saveDelay *time.Duration, now time.Time) *Waiting {
	w := &Waiting{Warning: e.warning, Advice: n.Saved.Advice(), Lock: heldLock(e.locks, now)}
	place := placeOf(n.Name, e.places, now)
	w.Owner = place.Owner
	w.addPeriod(schedule.Of(n.Pending), place, saveDelay, now)
	add := func(reason WaitReason, applies bool) {
		if applies {
			w.Reasons = append(w.Reasons, reason)
		}
	}
	add(NoProcessor, w.Owner == "" && !e.placesUnknown)
	add(WarningEvent, w.Warning != nil)
	add(UnreadableRecord, n.Saved.Unreadable != nil && (w.Warning == nil || w.Warning.Reason != reasons.RecordUnreadable))
	add(Locked, w.Lock != nil)
	if len(w.Reasons) == 0 {
		add(SaveDelay, now.Before(w.Due.Time))
		add(Overdue, !now.Before(w.Due.Time))
	}
	return w
}

// addPeriod adds the batch period of the transactions.
func (w *Waiting) addPeriod(pending schedule.Pending, place ring.Place, saveDelay *time.Duration, now time.Time) {
	batch := settings.DefaultSaveDelay
	if saveDelay == nil {
		w.SaveDelayAssumed = true
	} else {
		batch = *saveDelay
	}
	w.SaveDelay, w.Ended = metav1.Duration{Duration: batch}, pending.Ended
	w.Due = &metav1.Time{Time: schedule.Due(pending, place, batch, now)}
	if !pending.Urgent {
		atOnce := schedule.Due(pending, place, 0, now)
		w.Period = metav1.Duration{Duration: w.Due.Sub(atOnce)}
	}
}

// placeOf returns the place of a node's owner on the ring of the processors, as they compute it.
func placeOf(node string, leases []*coordinationv1.Lease, now time.Time) ring.Place {
	const processors = 1 // in Services
	var ready, unready []string
	for _, l := range leases {
		if l.Labels[ring.Label] != Services[processors] || l.Annotations[ring.StandbyKey(ring.Label)] == "true" {
			continue
		}
		switch state := shardlease.StateOf(l, sinceRenewal(l, now), 0); {
		case state == shardlease.Ready:
			ready = append(ready, l.Name)
		case state.Member():
			unready = append(unready, l.Name)
		}
	}
	place := ring.Place{Owner: hashring.New(ready...).Owner(node)}
	place.Unready = hashring.New(slices.Concat(ready, unready)...).Rank(node, place.Owner) > 0
	return place
}

// heldLock returns the lock of a node from the Leases of its name.
func heldLock(leases []*coordinationv1.Lease, now time.Time) *HeldLock {
	for _, l := range leases {
		if !nodelock.IsLock(l) || shardlease.Holder(l) == "" {
			continue
		}
		lock := &HeldLock{Holder: shardlease.Holder(l), IsExpired: isExpired(l, now)}
		if l.Spec.AcquireTime != nil {
			lock.Since = timeOf(l.Spec.AcquireTime.Time)
		}
		return lock
	}
	return nil
}
