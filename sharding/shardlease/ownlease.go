package shardlease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// errTaken means that another client holds the Lease because this shard was silent for too long.
var errTaken = errors.New("another client has taken over the Lease")

// ownLease renews and releases the Lease of a shard. Each write is conditional on the version that
// is known to be stored. It is not safe for concurrent use.
type ownLease struct {
	leases  coordinationv1client.LeaseInterface
	config  Config
	history *history

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

// isCurrent reports whether the stored Lease is known to have been renewed with these annotations.
func (o *ownLease) isCurrent(desired map[string]string) bool {
	return !o.renewed.IsZero() && len(o.attempts) == 0 && maps.Equal(o.annotations, desired)
}

// renew stores the Lease with the desired annotations. If another client has written the Lease
// since the last renewal, the first attempt detects it and a second one follows at once.
func (o *ownLease) renew(ctx context.Context, desired func() map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, RenewPeriod(o.config.Duration))
	defer cancel()
	err := o.attempt(ctx, desired)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		err = o.attempt(ctx, desired)
	}
	return err
}

// attempt writes the Lease once, conditional on the last known version. Afterwards the stored
// version is known again unless the error leaves the outcome unknown.
func (o *ownLease) attempt(ctx context.Context, desired func() map[string]string) error {
	if o.stored != nil && Holder(o.stored) != o.config.Name {
		if err := o.read(ctx); err != nil {
			return err
		}
	}
	sent := attempt{time.Now(), desired()}
	written, err := o.write(ctx, o.next(sent))
	switch {
	case err == nil:
		o.succeed(written, sent)
		o.takeovers.Forget(o.config.Name)
		return nil
	case apierrors.IsNotFound(err):
		o.replaced(nil)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		if readErr := o.read(ctx); readErr != nil {
			return readErr
		}
	default:
		o.attempts = append(o.attempts, sent)
	}
	return fmt.Errorf("renewing the Lease %q: %w", o.config.Name, err)
}

// next returns the Lease to store next.
func (o *ownLease) next(send attempt) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	if o.stored != nil {
		l = o.stored.DeepCopy()
	}
	l.Name, l.Namespace, l.Annotations = o.config.Name, o.config.Namespace, maps.Clone(send.annotations)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	maps.Copy(l.Labels, o.config.Labels)
	if Holder(l) != o.config.Name {
		if l.Spec.LeaseTransitions == nil {
			l.Spec.LeaseTransitions = new(int32(-1))
		}
		*l.Spec.LeaseTransitions++
		l.Spec.AcquireTime = new(metav1.NewMicroTime(send.at))
	}
	hold(l, o.config.Name, o.config.Duration, send.at)
	return l
}

// hold sets the fields of a Lease that a renewal by the holder sets.
func hold(l *coordinationv1.Lease, holder string, duration time.Duration, now time.Time) {
	l.Spec.HolderIdentity = &holder
	l.Spec.LeaseDurationSeconds = new(int32(duration / time.Second)) //nolint:gosec // seconds to minutes
	l.Spec.RenewTime = new(metav1.NewMicroTime(now))
}

// write creates the Lease, or updates it conditional on the last known version.
func (o *ownLease) write(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if o.stored == nil {
		return o.leases.Create(ctx, l, metav1.CreateOptions{})
	}
	return o.leases.Update(ctx, l, metav1.UpdateOptions{})
}

// succeed records a successful renewal.
func (o *ownLease) succeed(stored *coordinationv1.Lease, sent attempt) {
	o.history.add(stored, sent.at, o.renewed.IsZero())
	o.stored, o.annotations, o.attempts, o.renewed = stored, sent.annotations, nil, sent.at
	o.config.Renewed()
}

// replaced records a version that another client has stored, or nil if the Lease is gone.
func (o *ownLease) replaced(stored *coordinationv1.Lease) {
	o.stored, o.attempts, o.renewed = stored, nil, time.Time{}
	if stored != nil && Holder(stored) != o.config.Name && o.history.firstStored() != nil {
		o.config.Lost()
	}
}

// read reads the Lease after another write of it. The writer may be an earlier attempt of this
// shard whose response was lost. It returns errTaken while another client holds the Lease.
func (o *ownLease) read(ctx context.Context) error {
	stored, err := o.leases.Get(ctx, o.config.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		o.replaced(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease %q: %w", o.config.Name, err)
	}
	switch sent, ok := o.attempted(stored); {
	case o.stored != nil && o.stored.UID == stored.UID && o.stored.ResourceVersion == stored.ResourceVersion:
		// Nothing has changed. An attempt may still be in flight.
	case ok:
		o.succeed(stored, sent)
	default:
		if IsSetBack(stored, o.history.lastStored()) {
			o.config.SetBack()
		}
		o.replaced(stored)
	}
	if holder := Holder(stored); holder == "" || holder == o.config.Name {
		return nil
	}
	now := time.Now()
	o.takeovers.See(stored, StoredSince(stored, now)) // a process that has just started has no sighting of it
	if o.takeovers.Left(o.config.Name, now) > 0 {
		return errTaken
	}
	return nil
}

// IsSetBack reports whether a Lease is an earlier version than its holder has stored; that is nil if
// it has stored none.
func IsSetBack(read, stored *coordinationv1.Lease) bool {
	return stored != nil && read.UID == stored.UID && Holder(read) == Holder(stored) &&
		read.Spec.RenewTime != nil && read.Spec.RenewTime.Time.Before(stored.Spec.RenewTime.Time)
}

// attempted returns the attempt that stored this version of the Lease, if its response was lost.
// Attempts are distinguished by their renewTime in microseconds.
func (o *ownLease) attempted(stored *coordinationv1.Lease) (sent attempt, ok bool) {
	if Holder(stored) != o.config.Name || stored.Spec.RenewTime == nil || o.stored != nil && o.stored.UID != stored.UID {
		return attempt{}, false
	}
	for _, sent := range o.attempts {
		if sent.at.UnixMicro() == stored.Spec.RenewTime.UnixMicro() {
			return sent, true
		}
	}
	return attempt{}, false
}

// release releases the Lease if this shard holds it.
func (o *ownLease) release(ctx context.Context) error {
	if o.stored == nil && len(o.attempts) == 0 {
		return nil
	}
	if o.renewed.IsZero() || len(o.attempts) > 0 {
		if err := o.read(ctx); err != nil {
			return err
		}
	}
	for o.stored != nil && Holder(o.stored) == o.config.Name {
		released := o.stored.DeepCopy()
		hold(released, "", time.Second, time.Now())
		_, err := o.leases.Update(ctx, released, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := o.read(ctx); err != nil {
			return err
		}
	}
	return nil
}
