package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/placement/contract"
)

var (
	// errLost means that the Lease does not name the incarnation any longer.
	errLost = errors.New("the Lease was deleted, released or taken over")
	// errLate means that the Lease was not renewed for the renew deadline.
	errLate = errors.New("not renewed in time")
	// errHeld means that another pod holds the Lease, or may hold it.
	errHeld = errors.New("another pod of this name holds the Lease")
	// errBusy means that work of a former incarnation may still run.
	errBusy = errors.New("the data plane has not stopped what an earlier process of this pod has given it")
	// errForeign means that the object does not belong to the pool.
	errForeign = errors.New("the Lease does not belong to the pool: delete it, or give this pod another name")
)

// keeper keeps the Lease of one incarnation by conditional writes. It never creates a Lease,
// because that write could arrive after the incarnation counts as ended.
type keeper struct {
	leases      coordinationv1client.LeaseInterface
	options     *Options
	incarnation string
	changed     signal.Signal      // receives a value when the acknowledgement changes
	renewed     chan time.Duration // receives when the latest renewal was sent
	now         func() time.Duration

	mu  sync.Mutex
	ack string // the acknowledgement that the Lease must have

	// stored belongs to the goroutine of run.
	stored *coordinationv1.Lease
}

// join acquires the Lease: it creates it, takes it if it is free, or adopts the incarnation of an
// earlier process of the same pod. It returns the keeper, the last generation that the process may
// not go below, and when the write was sent.
func (a *agent) join(ctx context.Context) (k *keeper, last int64, sent time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.renewPeriod())
	defer cancel()
	leases := a.leases.Leases(a.Namespace)
	l, err := leases.Get(ctx, a.Pod, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, 0, sent, fmt.Errorf("reading the Lease: %w", err)
	}
	isNew := err != nil
	if isNew {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Pod, Labels: map[string]string{contract.PoolLabel: a.Pool}}}
	}
	switch holder := holderOf(l); {
	case l.Labels[contract.PoolLabel] != a.Pool:
		return nil, 0, sent, errForeign
	case holder != "" && !a.isOwn(holder):
		return nil, 0, sent, errHeld
	case holder != "" && a.adopts(l):
		last = adopt(l)
	case !a.idle(ctx):
		return nil, 0, sent, errBusy
	case holder == "":
		a.beginRun(l)
	default: // nothing of the former run is left, because this is the only process of the pod
		a.beginRun(l)
		markEnded(l, holder)
	}
	k = &keeper{
		leases: leases, options: &a.Options, incarnation: holderOf(l),
		changed: signal.New(), renewed: make(chan time.Duration, 1), now: a.now, ack: l.Annotations[contract.AcknowledgedAnnotation],
	}
	a.describe(l)
	sent = a.now()
	if isNew {
		k.stored, err = leases.Create(ctx, l, metav1.CreateOptions{})
	} else {
		k.stored, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, 0, sent, fmt.Errorf("acquiring the Lease: %w", err)
	}
	return k, last, sent, nil
}

// beginRun makes a Lease name a new incarnation.
func (a *agent) beginRun(l *coordinationv1.Lease) {
	l.Spec.HolderIdentity = new(contract.NewIncarnation(a.PodUID, string(uuid.NewUUID())[:8], a.LeaseDuration))
	l.Spec.AcquireTime = new(metav1.NowMicro())
}

// adopts reports whether this process may continue the incarnation that a Lease names: the Lease is
// the same object as when that incarnation began, and has the same duration.
func (a *agent) adopts(l *coordinationv1.Lease) bool {
	return l.Annotations[contract.LeaseAnnotation] == string(l.UID) && contract.LeaseDuration(holderOf(l)) == a.LeaseDuration
}

// adopt prepares a Lease that an earlier process of this pod holds.
func adopt(l *coordinationv1.Lease) (last int64) {
	ack, err := contract.DecodeAck([]byte(l.Annotations[contract.AcknowledgedAnnotation]))
	if err != nil || ack.Incarnation != holderOf(l) {
		return 0
	}
	last, ack = contract.Adopt(ack)
	l.Annotations[contract.AcknowledgedAnnotation] = string(ack.Encode())
	return last
}

// describe sets everything that the Lease has of the pod, whatever other clients have written, and
// renews it.
func (o *Options) describe(l *coordinationv1.Lease) {
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	set := func(key, value string) {
		delete(l.Annotations, key)
		if value != "" {
			l.Annotations[key] = value
		}
	}
	set(contract.LeaseAnnotation, string(l.UID)) // none yet if the Lease is new
	set(contract.ZoneAnnotation, o.Zone)
	set(contract.CapacityAnnotation, "")
	if o.Capacity > 0 {
		set(contract.CapacityAnnotation, strconv.Itoa(int(o.Capacity)))
	}
	l.Spec.LeaseDurationSeconds = new(int32(o.LeaseDuration / time.Second)) //nolint:gosec // checked by completed
	l.Spec.RenewTime = new(metav1.NowMicro())
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// acknowledge makes the Lease have an acknowledgement. It does not wait.
func (k *keeper) acknowledge(ack string) {
	k.mu.Lock()
	k.ack = ack
	k.mu.Unlock()
	k.changed.Send()
}

func (k *keeper) wanted() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ack
}

// run renews the Lease until ctx ends. It returns errLost if the Lease does not name the
// incarnation any longer.
func (k *keeper) run(ctx context.Context) error {
	timer := time.NewTimer(k.options.renewPeriod())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-k.changed:
			if k.wanted() == k.stored.Annotations[contract.AcknowledgedAnnotation] {
				continue
			}
		}
		next := k.options.renewPeriod()
		if err := k.renew(ctx); err != nil {
			if errors.Is(err, errLost) || k.options.OnLostLease == Keep && k.isLost(ctx) {
				return errLost
			}
			if ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Info("Renewing the Lease failed, retrying", "error", err.Error())
			}
			next = k.options.retryPeriod()
		}
		timer.Reset(next)
	}
}

// renew renews the Lease. If its version is unknown, because another client has changed it or an
// answer was lost, it reads the Lease and tries again at once.
func (k *keeper) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.options.renewPeriod())
	defer cancel()
	err := k.attempt(ctx)
	if apierrors.IsConflict(err) {
		if err = k.read(ctx); err == nil {
			err = k.attempt(ctx)
		}
	}
	return err
}

// attempt writes the Lease once, conditional on the last known version.
func (k *keeper) attempt(ctx context.Context) error {
	next, sent := k.stored.DeepCopy(), k.now()
	k.options.describe(next)
	if ack := k.wanted(); ack != "" {
		next.Annotations[contract.AcknowledgedAnnotation] = ack
	}
	stored, err := k.leases.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return errLost
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease: %w", err)
	}
	k.stored = stored
	k.options.Renewed(sent + RenewDeadline(k.options.LeaseDuration))
	select {
	case <-k.renewed: // not received yet: the new time replaces it
	default:
	}
	k.renewed <- sent
	return nil
}

// read reads the Lease. It returns errLost if the Lease does not name the incarnation.
func (k *keeper) read(ctx context.Context) error {
	stored, err := k.leases.Get(ctx, k.options.Pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (holderOf(stored) != k.incarnation || stored.UID != k.stored.UID) {
		return errLost
	}
	if err != nil {
		return fmt.Errorf("reading the Lease: %w", err)
	}
	k.stored = stored
	return nil
}

// isLost reports whether a read of the Lease shows that it does not name the incarnation any longer.
// Workers that go on without renewals must not depend on an answer to a write, which may be refused
// for other reasons, or time out.
func (k *keeper) isLost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, k.options.renewPeriod())
	defer cancel()
	return errors.Is(k.read(ctx), errLost)
}

// leave releases the Lease if it still names an incarnation of this pod, which has ended, because
// all Workers have returned. It returns nil if the Lease names none.
func (a *agent) leave(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	for !a.idle(ctx) {
		pause(ctx, pollPeriod)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for {
		err := a.release(ctx)
		switch {
		case err == nil, apierrors.IsNotFound(err): // nothing to release, or done
			return nil
		case apierrors.IsConflict(err): // another client has changed it meanwhile
			continue
		case !pause(ctx, a.retryPeriod()):
			return fmt.Errorf("releasing the Lease: %w", err)
		}
	}
}

// release is an attempt of leave.
func (a *agent) release(ctx context.Context) error {
	leases := a.leases.Leases(a.Namespace)
	l, err := leases.Get(ctx, a.Pod, metav1.GetOptions{})
	if err != nil {
		return err //nolint:wrapcheck // leave does
	}
	holder := holderOf(l)
	if !a.isOwn(holder) || l.Labels[contract.PoolLabel] != a.Pool {
		return nil
	}
	markEnded(l, holder)
	l.Spec.HolderIdentity = new("")
	_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	return err //nolint:wrapcheck // as above
}

// markEnded records on a Lease that an incarnation has ended.
func markEnded(l *coordinationv1.Lease, incarnation string) {
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	contract.MarkEnded(l.Annotations, incarnation)
}

// isOwn reports whether an incarnation is one of this pod.
func (a *agent) isOwn(incarnation string) bool {
	return strings.HasPrefix(incarnation, string(a.PodUID)+"/")
}

// pause waits. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
