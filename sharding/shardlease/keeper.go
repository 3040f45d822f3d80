package shardlease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/signal"
)

// Keeper keeps the Lease of one shard by conditional writes. It does not use client-go's leader
// elector: a Lease that is named like its holder has no contenders, and the elector can neither
// write on demand nor report when a version of the Lease was sent.
//
// All annotations of the Lease belong to the keeper. Its methods are safe for concurrent use. Run
// must be called once.
type Keeper struct {
	config      Config
	annotations annotations
	history     history
	wanted      signal.Signal // receives a value to request a renewal
	ended       chan struct{}
	// abandoned means that the Lease must not be released.
	abandoned atomic.Bool
	// lease belongs to the goroutine of Run.
	lease ownLease
}

// NewKeeper returns a Keeper. It does no I/O.
func NewKeeper(cfg Config) *Keeper {
	cfg = cfg.completed()
	k := &Keeper{config: cfg, annotations: newAnnotations(cfg.Annotations), wanted: signal.New(), ended: make(chan struct{})}
	k.history.keep = maxRemembered * RenewPeriod(cfg.Duration)
	k.lease = ownLease{config: cfg, leases: cfg.Client.Leases(cfg.Namespace), history: &k.history}
	return k
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
func (k *Keeper) Annotate(key, value string) { k.annotations.set(key, value) }

// Annotations returns the annotations that the Lease must have, including pending ones.
func (k *Keeper) Annotations() map[string]string { return k.annotations.all() }

// Renew requests a renewal before the next one is due. It does not wait. Each call costs a write,
// so do not call it more often than once a second.
func (k *Keeper) Renew() { k.wanted.Send() }

// Abandon makes Run return without releasing the Lease: other processes consider this shard alive
// until the Lease expires. Call it before the context of Run ends if this process may still be
// working then.
func (k *Keeper) Abandon() { k.abandoned.Store(true) }

// LastRenewal returns when the latest renewal that is known to be stored was sent, with a monotonic
// clock reading. It is zero before the first renewal.
func (k *Keeper) LastRenewal() time.Time { return k.history.lastRenewal() }

// SentAt returns when the renewal that created this version of the shard's Lease was sent. It
// returns false if that is unknown, which may change while a response is outstanding.
func (k *Keeper) SentAt(l *coordinationv1.Lease) (sent time.Time, ok bool) {
	return k.history.sentAt(l)
}

// First returns the Lease as stored by this process's first renewal, or by the first one since
// another client last wrote the Lease. It returns nil before the first renewal. The Lease must not
// be modified.
func (k *Keeper) First() *coordinationv1.Lease { return k.history.firstStored() }

// Stored returns the Lease as stored by this process's last renewal, or nil before the first
// renewal. The Lease must not be modified.
func (k *Keeper) Stored() *coordinationv1.Lease { return k.history.lastStored() }

// HasStored reports whether a Lease is this shard's, at the version that [Keeper.First] returns or
// a later one.
func (k *Keeper) HasStored(l *coordinationv1.Lease) bool { return k.history.hasStored(l) }

// run keeps the Lease and releases it, without the bound on the release.
func (k *Keeper) run(ctx context.Context) {
	defer close(k.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-timer.C:
		case <-k.annotations.changed:
			if k.lease.isCurrent(k.annotations.all()) {
				continue
			}
		case <-k.wanted:
		}
		timer.Reset(k.pause(ctx, k.lease.renew(ctx, k.annotations.all)))
	}
	if k.abandoned.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := k.lease.release(ctx); err != nil {
		logf.FromContext(ctx).V(1).Info("Releasing the Lease of this shard failed", "error", err.Error())
	}
}

// pause returns the delay before the next attempt to renew.
func (k *Keeper) pause(ctx context.Context, err error) time.Duration {
	switch {
	case k.lease.isCurrent(k.annotations.all()):
		return time.Until(k.lease.renewed.Add(RenewPeriod(k.config.Duration)))
	case err == nil: // an annotation changed meanwhile
		return 0
	case errors.Is(err, errTaken):
		return min(RenewPeriod(k.config.Duration), k.lease.takeovers.Left(k.config.Name, time.Now()))
	case ctx.Err() == nil:
		logf.FromContext(ctx).V(1).Info("Renewing the Lease of this shard failed, retrying", "error", err.Error())
	}
	return RetryPeriod(k.config.Duration)
}
