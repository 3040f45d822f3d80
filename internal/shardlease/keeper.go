package shardlease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// maxChain bounds the renewals that are remembered: those of five minutes. A watch is quiet for a
// minute at most, until its next bookmark.
const maxChain = 64

var (
	// errTaken means that a peer holds the Lease: this member was silent for long.
	errTaken = errors.New("a peer has taken the Lease over")
	errEnded = errors.New("this member has ended")
)

// keeper keeps the Lease of one member. All fields below run belong to the goroutine that runs it.
type keeper struct {
	leases   coordinationv1client.LeaseInterface
	config   Config
	desired  func() map[string]string // the annotations that the Lease must have
	changed  chan struct{}            // tells that they changed
	wanted   chan struct{}            // asks for a renewal now
	extended func()                   // called after each renewal
	confirms chan confirmation
	ended    chan struct{}
	// first is the Lease as stored by the first renewal of the chain.
	first atomic.Pointer[coordinationv1.Lease]

	stored *coordinationv1.Lease // as last read or written; nil if none is known
	// annotations are those that the last renewal of the chain sent. What is stored may differ: an
	// admission plugin can add annotations to every write.
	annotations map[string]string
	// chain holds when the renewals were sent, oldest first, of which each had the one before as
	// its condition. It is empty unless the Lease is stored as this process has written it.
	chain []time.Time
	// breaks counts how often somebody else's write ended the chain.
	breaks int
	// attempts are the writes whose outcome is unknown. All have the same condition, so at most one
	// of them was successful.
	attempts []attempt
	// takeovers are sightings of the own Lease while a peer holds it.
	takeovers Sightings

	mu sync.Mutex
	// sent holds when the latest renewals were sent, by the resourceVersion of the stored Lease.
	// Any goroutine may read it.
	sent map[string]time.Time
}

// attempt is a renewal as it was sent.
type attempt struct {
	at          time.Time
	annotations map[string]string
}

// confirmation is a request to confirm what was observed before a time.
type confirmation struct {
	before time.Time
	answer chan<- confirmed // has room for it
}

type confirmed struct {
	until time.Time
	err   error
}

func newKeeper(cfg Config, desired func() map[string]string, extended func()) *keeper {
	return &keeper{
		leases: cfg.leases(), config: cfg, desired: desired, extended: extended,
		changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1), confirms: make(chan confirmation), ended: make(chan struct{}),
	}
}

// run keeps the Lease until ctx is cancelled and then releases it.
func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		var err error
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
			err = k.renew(ctx)
		case <-k.changed:
			if k.isCurrent() {
				continue
			}
			err = k.renew(ctx)
		case <-k.wanted:
			err = k.renew(ctx)
		case c := <-k.confirms:
			var until time.Time
			until, err = k.prove(ctx, c.before)
			c.answer <- confirmed{until, err}
		}
		timer.Reset(k.pause(ctx, err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := k.release(ctx); err != nil {
		logf.FromContext(ctx).V(1).Info("Releasing the Lease of this member failed", "error", err.Error())
	}
}

// pause returns how long to wait after an attempt to renew.
func (k *keeper) pause(ctx context.Context, err error) time.Duration {
	switch {
	case k.isCurrent():
		return time.Until(k.chain[len(k.chain)-1].Add(k.config.renewPeriod()))
	case err == nil: // an annotation changed meanwhile
		return 0
	case errors.Is(err, errTaken):
		return min(k.config.renewPeriod(), k.takeovers.Left(k.config.Name, time.Now()))
	case ctx.Err() == nil:
		logf.FromContext(ctx).V(1).Info("Renewing the Lease of this member failed, retrying", "error", err.Error())
	}
	return k.config.retryPeriod()
}

// isCurrent reports whether the Lease is known to be stored as it must be, but for its age.
func (k *keeper) isCurrent() bool {
	return len(k.chain) > 0 && len(k.attempts) == 0 && maps.Equal(k.annotations, k.desired())
}

// confirm asks the goroutine that owns the Lease for [Member.Confirm].
func (k *keeper) confirm(ctx context.Context, before time.Time) (time.Time, error) {
	answer := make(chan confirmed, 1)
	select {
	case k.confirms <- confirmation{before, answer}:
	case <-k.ended:
		return time.Time{}, errEnded
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	select {
	case c := <-answer:
		return c.until, c.err
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// prove renews and returns when the last renewal before a time was sent, if all renewals since were
// made without a break.
func (k *keeper) prove(ctx context.Context, before time.Time) (until time.Time, err error) {
	for _, sent := range k.chain {
		if sent.Before(before) {
			until = sent
		}
	}
	if until.IsZero() {
		return until, ErrUnproven
	}
	breaks := k.breaks
	err = k.renew(ctx)
	switch {
	case k.breaks != breaks:
		return time.Time{}, ErrUnproven
	case err != nil:
		return time.Time{}, err
	}
	return until, nil
}

// renew stores the Lease as it must be. If somebody else has written it since, the first attempt
// finds that out and the second follows at once.
func (k *keeper) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.config.renewPeriod())
	defer cancel()
	err := k.attempt(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		err = k.attempt(ctx)
	}
	return err
}

// attempt writes the Lease once, conditional on what is stored as this member knows it. Afterwards
// that is known again, unless the error leaves it open.
func (k *keeper) attempt(ctx context.Context) error {
	if k.stored != nil && Holder(k.stored) != k.config.Name {
		if err := k.read(ctx); err != nil {
			return err
		}
	}
	sent := attempt{time.Now(), k.desired()}
	written, err := k.write(ctx, k.renewed(sent))
	switch {
	case err == nil:
		k.extend(written, sent)
		k.takeovers.Forget(k.config.Name)
		return nil
	case apierrors.IsNotFound(err):
		k.restart(nil)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		if readErr := k.read(ctx); readErr != nil {
			return readErr
		}
	default:
		k.attempts = append(k.attempts, sent)
	}
	return fmt.Errorf("renewing the Lease %q: %w", k.config.Name, err)
}

// write creates the Lease, or updates it on the condition that it is as it was stored.
func (k *keeper) write(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if k.stored == nil {
		return k.leases.Create(ctx, l, metav1.CreateOptions{})
	}
	return k.leases.Update(ctx, l, metav1.UpdateOptions{})
}

// extend notes a renewal that is stored and had the last one as its condition, or is the first one.
func (k *keeper) extend(stored *coordinationv1.Lease, sent attempt) {
	k.stored, k.annotations, k.attempts, k.chain = stored, sent.annotations, nil, append(k.chain, sent.at)
	if len(k.chain) == 1 {
		k.first.Store(stored)
	}
	if len(k.chain) > maxChain {
		k.chain = k.chain[1:]
	}
	k.remember(stored, sent.at)
	k.extended()
}

// remember notes when a renewal was sent, and forgets old ones.
func (k *keeper) remember(stored *coordinationv1.Lease, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sent == nil {
		k.sent = map[string]time.Time{}
	}
	k.sent[stored.ResourceVersion] = sent
	maps.DeleteFunc(k.sent, func(_ string, at time.Time) bool { return sent.Sub(at) > maxChain*k.config.renewPeriod() })
}

// sentAt returns when the renewal that stored this state of the own Lease was sent. It returns
// false if that is not known, or not yet.
func (k *keeper) sentAt(l *coordinationv1.Lease) (sent time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sent, ok = k.sent[l.ResourceVersion]
	return sent, ok
}

// restart notes what somebody else has stored, nil if the Lease is gone: the next renewal starts
// another chain.
func (k *keeper) restart(stored *coordinationv1.Lease) {
	if len(k.chain) > 0 {
		k.breaks++
	}
	k.stored, k.attempts, k.chain = stored, nil, nil
}

// hasStored reports whether a Lease is the own one, as the first renewal of the chain or a later
// one has stored it.
func (k *keeper) hasStored(l *coordinationv1.Lease) bool {
	first := k.first.Load()
	if first == nil || first.UID != l.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(l.ResourceVersion, first.ResourceVersion)
	return err == nil && order >= 0
}

// read reads the Lease after somebody else wrote it, or perhaps an attempt of this member did whose
// answer was lost: then the chain of renewals goes on. It returns errTaken while the Lease is a
// peer's.
func (k *keeper) read(ctx context.Context) error {
	stored, err := k.leases.Get(ctx, k.config.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		k.restart(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease %q: %w", k.config.Name, err)
	}
	switch sent, ok := k.attempted(stored); {
	case k.stored != nil && k.stored.UID == stored.UID && k.stored.ResourceVersion == stored.ResourceVersion:
		// Nothing has changed. An attempt may still be under way.
	case ok:
		k.extend(stored, sent)
	default:
		k.restart(stored)
	}
	if holder := Holder(stored); holder == "" || holder == k.config.Name {
		return nil
	}
	now := time.Now()
	k.takeovers.See(stored, StoredSince(stored, now)) // a process that has just started has seen nothing of it
	if k.takeovers.Left(k.config.Name, now) > 0 {
		return errTaken
	}
	return nil
}

// attempted returns the attempt that stored the Lease, if it is one whose answer was lost. Its
// renewTime, in microseconds, is what tells one attempt from another.
func (k *keeper) attempted(stored *coordinationv1.Lease) (sent attempt, ok bool) {
	if Holder(stored) != k.config.Name || stored.Spec.RenewTime == nil || k.stored != nil && k.stored.UID != stored.UID {
		return attempt{}, false
	}
	for _, sent := range k.attempts {
		if sent.at.UnixMicro() == stored.Spec.RenewTime.UnixMicro() {
			return sent, true
		}
	}
	return attempt{}, false
}

// renewed returns the Lease as it must be stored next.
func (k *keeper) renewed(send attempt) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	if k.stored != nil {
		l = k.stored.DeepCopy()
	}
	l.Name, l.Namespace, l.Annotations = k.config.Name, k.config.Namespace, maps.Clone(send.annotations)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[k.config.GroupLabel] = k.config.Group
	if Holder(l) != k.config.Name {
		if l.Spec.LeaseTransitions == nil {
			l.Spec.LeaseTransitions = new(int32(-1))
		}
		*l.Spec.LeaseTransitions++
		l.Spec.AcquireTime = new(metav1.NewMicroTime(send.at))
	}
	hold(l, k.config.Name, k.config.Duration, send.at)
	return l
}

// hold makes a Lease one that a holder has renewed.
func hold(l *coordinationv1.Lease, holder string, duration time.Duration, now time.Time) {
	l.Spec.HolderIdentity = &holder
	l.Spec.LeaseDurationSeconds = new(int32(duration / time.Second)) //nolint:gosec // seconds to minutes
	l.Spec.RenewTime = new(metav1.NewMicroTime(now))
}

// release stores that nobody holds the Lease, if this member does.
func (k *keeper) release(ctx context.Context) error {
	if k.stored == nil && len(k.attempts) == 0 {
		return nil
	}
	if len(k.chain) == 0 || len(k.attempts) > 0 {
		if err := k.read(ctx); err != nil {
			return err
		}
	}
	for k.stored != nil && Holder(k.stored) == k.config.Name {
		released := k.stored.DeepCopy()
		hold(released, "", time.Second, time.Now())
		_, err := k.leases.Update(ctx, released, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := k.read(ctx); err != nil {
			return err
		}
	}
	return nil
}
