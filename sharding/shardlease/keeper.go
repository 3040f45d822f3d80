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

	"nodekeeper.dev/internal/daemon/signal"
)

// maxRemembered is how many periods the time of a renewal is remembered, see [Keeper.SentAt]. A
// watch may be late by several.
const maxRemembered = 64

// errTaken means that another client holds the Lease because this shard was silent for too long.
var errTaken = errors.New("another client has taken over the Lease")

// Keeper keeps the Lease of one shard by conditional writes. It does not use client-go's leader
// elector: a Lease that is named like its holder has no contenders, and the elector can neither
// write on demand nor report when a version of the Lease was sent.
//
// All annotations of the Lease belong to the keeper. Its methods are safe for concurrent use. Run
// must be called once.
//
// All fields from stored on belong to the goroutine of Run.
type Keeper struct {
	leases  coordinationv1client.LeaseInterface
	config  Config
	changed signal.Signal // receives a value when the annotations change
	wanted  signal.Signal // receives a value to request a renewal
	ended   chan struct{}
	// first is the Lease as stored by the first renewal since another client has written it.
	first atomic.Pointer[coordinationv1.Lease]
	// latest is the Lease as stored by the last renewal.
	latest atomic.Pointer[coordinationv1.Lease]
	// abandoned means that the Lease must not be released.
	abandoned atomic.Bool

	mu sync.Mutex
	// desired are the annotations that the Lease must have.
	desired map[string]string
	// sent holds the times at which the latest renewals were sent, by the resourceVersion of the
	// stored Lease.
	sent map[string]time.Time
	// last is when the latest successful renewal was sent.
	last time.Time

	stored *coordinationv1.Lease // as last read or written; nil if unknown
	// renewed is when the renewal was sent that has written stored. It is zero if another client has
	// written it.
	renewed time.Time
	// annotations are the ones that this renewal sent. The stored ones may differ: an admission plugin
	// can add annotations to every write.
	annotations map[string]string
	// attempts are the writes whose outcome is unknown. All have the same precondition, so at most
	// one of them has succeeded.
	attempts []attempt
	// takeovers are sightings of this shard's Lease while another client holds it.
	takeovers Sightings
}

// attempt is a renewal as it was sent.
type attempt struct {
	at          time.Time
	annotations map[string]string
}

// NewKeeper returns a Keeper. It does no I/O.
func NewKeeper(cfg Config) *Keeper {
	cfg = cfg.completed()
	return &Keeper{
		leases: cfg.Client.Leases(cfg.Namespace), config: cfg, desired: maps.Clone(cfg.Annotations),
		changed: signal.New(), wanted: signal.New(), ended: make(chan struct{}),
	}
}

// Run keeps the Lease until ctx is canceled. It then releases the Lease, which takes at most two
// seconds, and returns. After [Keeper.Abandon] it does not release the Lease.
func (k *Keeper) Run(ctx context.Context) {
	go k.run(ctx)
	select {
	case <-k.ended:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(releaseTimeout)
	defer timer.Stop()
	select {
	case <-k.ended:
	case <-timer.C: // The API server does not respond; the process may exit without waiting any longer.
	}
}

// Annotate sets an annotation of the Lease; an empty value removes it. Annotate does not wait. The
// keeper writes all pending annotations together, soon, and retries until each is stored or
// replaced by another value.
func (k *Keeper) Annotate(key, value string) {
	k.mu.Lock()
	if value == "" {
		delete(k.desired, key)
	} else {
		k.desired[key] = value
	}
	k.mu.Unlock()
	k.changed.Send()
}

// Annotations returns the annotations that the Lease must have, including pending ones.
func (k *Keeper) Annotations() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.desired)
}

// Renew requests a renewal before the next one is due. It does not wait. Each call costs a write,
// so do not call it more often than once a second.
func (k *Keeper) Renew() { k.wanted.Send() }

// Abandon makes Run return without releasing the Lease: other processes consider this shard alive
// until the Lease expires. Call it before the context of Run ends if this process may still be
// working then.
func (k *Keeper) Abandon() { k.abandoned.Store(true) }

// LastRenewal returns when the latest renewal that is known to be stored was sent, with a monotonic
// clock reading. It is zero before the first renewal.
func (k *Keeper) LastRenewal() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// run keeps the Lease and releases it, without the bound on the release.
func (k *Keeper) run(ctx context.Context) {
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
		}
		timer.Reset(k.pause(ctx, err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := k.release(ctx); err != nil {
		logf.FromContext(ctx).V(1).Info("Releasing the Lease of this shard failed", "error", err.Error())
	}
}

// pause returns the delay before the next attempt to renew.
func (k *Keeper) pause(ctx context.Context, err error) time.Duration {
	switch {
	case k.isCurrent():
		return time.Until(k.renewed.Add(RenewPeriod(k.config.Duration)))
	case err == nil: // an annotation changed meanwhile
		return 0
	case errors.Is(err, errTaken):
		return min(RenewPeriod(k.config.Duration), k.takeovers.Left(k.config.Name, time.Now()))
	case ctx.Err() == nil:
		logf.FromContext(ctx).V(1).Info("Renewing the Lease of this shard failed, retrying", "error", err.Error())
	}
	return RetryPeriod(k.config.Duration)
}

// isCurrent reports whether the stored Lease is known to have the desired content, apart from its
// renewTime.
func (k *Keeper) isCurrent() bool {
	return !k.renewed.IsZero() && len(k.attempts) == 0 && maps.Equal(k.annotations, k.Annotations())
}

// renew stores the desired Lease. If another client has written the Lease since the last renewal,
// the first attempt detects it and a second one follows at once.
func (k *Keeper) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, RenewPeriod(k.config.Duration))
	defer cancel()
	err := k.attempt(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		err = k.attempt(ctx)
	}
	return err
}

// attempt writes the Lease once, conditional on the last known version. Afterwards the stored
// version is known again unless the error leaves the outcome unknown.
func (k *Keeper) attempt(ctx context.Context) error {
	if k.stored != nil && Holder(k.stored) != k.config.Name {
		if err := k.read(ctx); err != nil {
			return err
		}
	}
	sent := attempt{time.Now(), k.Annotations()}
	written, err := k.write(ctx, k.next(sent))
	switch {
	case err == nil:
		k.succeed(written, sent)
		k.takeovers.Forget(k.config.Name)
		return nil
	case apierrors.IsNotFound(err):
		k.replaced(nil)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		if readErr := k.read(ctx); readErr != nil {
			return readErr
		}
	default:
		k.attempts = append(k.attempts, sent)
	}
	return fmt.Errorf("renewing the Lease %q: %w", k.config.Name, err)
}

// write creates the Lease, or updates it conditional on the last known version.
func (k *Keeper) write(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if k.stored == nil {
		return k.leases.Create(ctx, l, metav1.CreateOptions{})
	}
	return k.leases.Update(ctx, l, metav1.UpdateOptions{})
}

// succeed records a successful renewal.
func (k *Keeper) succeed(stored *coordinationv1.Lease, sent attempt) {
	if k.renewed.IsZero() {
		k.first.Store(stored)
	}
	k.stored, k.annotations, k.attempts, k.renewed = stored, sent.annotations, nil, sent.at
	k.latest.Store(stored)
	k.remember(stored, sent.at)
	k.config.Renewed()
}

// remember records when a renewal was sent, and discards old entries.
func (k *Keeper) remember(stored *coordinationv1.Lease, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sent == nil {
		k.sent = map[string]time.Time{}
	}
	k.sent[stored.ResourceVersion], k.last = sent, sent
	maps.DeleteFunc(k.sent, func(_ string, at time.Time) bool { return sent.Sub(at) > maxRemembered*RenewPeriod(k.config.Duration) })
}

// SentAt returns when the renewal that created this version of the shard's Lease was sent. It
// returns false if that is unknown, which may change while a response is outstanding.
func (k *Keeper) SentAt(l *coordinationv1.Lease) (sent time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sent, ok = k.sent[l.ResourceVersion]
	return sent, ok
}

// replaced records a version that another client has stored, or nil if the Lease is gone.
func (k *Keeper) replaced(stored *coordinationv1.Lease) {
	k.stored, k.attempts, k.renewed = stored, nil, time.Time{}
	if stored != nil && Holder(stored) != k.config.Name && k.first.Load() != nil {
		k.config.Lost()
	}
}

// First returns the Lease as stored by this process's first renewal, or by the first one since
// another client last wrote the Lease. It returns nil before the first renewal. The Lease must not
// be modified.
func (k *Keeper) First() *coordinationv1.Lease { return k.first.Load() }

// Stored returns the Lease as stored by this process's last renewal, or nil before the first
// renewal. The Lease must not be modified.
func (k *Keeper) Stored() *coordinationv1.Lease { return k.latest.Load() }

// HasStored reports whether a Lease is this shard's, at the version that [Keeper.First] returns or
// a later one.
func (k *Keeper) HasStored(l *coordinationv1.Lease) bool {
	first := k.first.Load()
	if first == nil || first.UID != l.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(l.ResourceVersion, first.ResourceVersion)
	return err == nil && order >= 0
}

// read reads the Lease after another write of it. The writer may be an earlier attempt of this
// shard whose response was lost. It returns errTaken while another client holds the Lease.
func (k *Keeper) read(ctx context.Context) error {
	stored, err := k.leases.Get(ctx, k.config.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		k.replaced(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease %q: %w", k.config.Name, err)
	}
	switch sent, ok := k.attempted(stored); {
	case k.stored != nil && k.stored.UID == stored.UID && k.stored.ResourceVersion == stored.ResourceVersion:
		// Nothing has changed. An attempt may still be in flight.
	case ok:
		k.succeed(stored, sent)
	default:
		k.replaced(stored)
	}
	if holder := Holder(stored); holder == "" || holder == k.config.Name {
		return nil
	}
	now := time.Now()
	k.takeovers.See(stored, StoredSince(stored, now)) // a process that has just started has no sighting of it
	if k.takeovers.Left(k.config.Name, now) > 0 {
		return errTaken
	}
	return nil
}

// attempted returns the attempt that stored this version of the Lease, if its response was lost.
// Attempts are distinguished by their renewTime in microseconds.
func (k *Keeper) attempted(stored *coordinationv1.Lease) (sent attempt, ok bool) {
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

// next returns the Lease to store next.
func (k *Keeper) next(send attempt) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	if k.stored != nil {
		l = k.stored.DeepCopy()
	}
	l.Name, l.Namespace, l.Annotations = k.config.Name, k.config.Namespace, maps.Clone(send.annotations)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	maps.Copy(l.Labels, k.config.Labels)
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

// hold sets the fields of a Lease that a renewal by the holder sets.
func hold(l *coordinationv1.Lease, holder string, duration time.Duration, now time.Time) {
	l.Spec.HolderIdentity = &holder
	l.Spec.LeaseDurationSeconds = new(int32(duration / time.Second)) //nolint:gosec // seconds to minutes
	l.Spec.RenewTime = new(metav1.NewMicroTime(now))
}

// release releases the Lease if this shard holds it.
func (k *Keeper) release(ctx context.Context) error {
	if k.abandoned.Load() || k.stored == nil && len(k.attempts) == 0 {
		return nil
	}
	if k.renewed.IsZero() || len(k.attempts) > 0 {
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
