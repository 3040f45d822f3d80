package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// leaderLease is the name of the Lease of the leader.
	leaderLease = "placement-controller"
	// The times of leader election, the defaults of Kubernetes' own controllers.
	leaderDuration, leaderDeadline, leaderRetry = 15 * time.Second, 10 * time.Second, 2 * time.Second
)

// errDeposed means that another process may be the leader by now.
var errDeposed = errors.New("this process is not the leader any longer")

// term is the time for which this process is the leader. Without it a process that was frozen would
// go on beside the next leader: the elector tries to renew the Lease for leaderDeadline first.
type term struct {
	end atomic.Pointer[time.Time] // unless the Lease is renewed before; nil until it is held
}

// isOver reports whether another process may be the leader.
func (t *term) isOver() bool {
	end := t.end.Load()
	return end == nil || !time.Now().Before(*end)
}

// renewed makes the term last for leaderDuration after the beginning of a write of the Lease, unless
// the write failed. Others take the Lease over that long after they have seen the write.
func (t *term) renewed(began time.Time, err error) error {
	if err == nil {
		end := began.Add(leaderDuration)
		t.end.Store(&end)
	}
	return err
}

// fence returns a transport that sends requests during the term only.
func (t *term) fence(next http.RoundTripper) http.RoundTripper { return fenced{t, next} }

type fenced struct {
	term *term
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.term.isOver() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errDeposed
	}
	return f.next.RoundTrip(r) //nolint:wrapcheck // clients expect the error of the transport
}

// lock is the Lease of the leader.
type lock struct {
	*resourcelock.LeaseLock

	term *term
	stop func() // ends the election
}

// Get implements [resourcelock.Interface]. A former leader ends its election as soon as it sees the
// next one.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() && l.term.end.Load() != nil {
		l.stop()
	}
	return record, raw, err //nolint:wrapcheck // the elector examines it
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	return l.term.renewed(began, l.LeaseLock.Create(ctx, record))
}

// Update implements [resourcelock.Interface]. It also releases the Lease, after the work has ended.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	return l.term.renewed(began, l.LeaseLock.Update(ctx, record))
}

// lead calls run once this process is the leader, and returns when run has returned. It returns an
// error if another process may be the leader before ctx has ended.
func (t *term) lead(ctx context.Context, cfg *rest.Config, namespace string, run func(context.Context) error) error {
	leases, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding a name for this process: %w", err)
	}
	identity := cmp.Or(os.Getenv("POD_NAME"), host) + "-" + rand.String(6)
	electing, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1) // holds the result of run
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaderLease}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}, term: t, stop: cancel},
		LeaseDuration: leaderDuration, RenewDeadline: leaderDeadline, RetryPeriod: leaderRetry, ReleaseOnCancel: true, Name: leaderLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel()
				done <- run(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	elector.Run(electing)
	select {
	case err := <-done:
		if err == nil && ctx.Err() == nil {
			err = errDeposed
		}
		return err
	default:
	}
	if ctx.Err() == nil {
		return errDeposed // run may take a moment longer, and the caller exits
	}
	return nil
}
