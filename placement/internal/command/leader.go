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

	"nodekeeper.dev/placement/internal/boottime"
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
	// end is when the term ends unless the Lease is renewed before, by [boottime.Now]. It is 0 before
	// the first term.
	end atomic.Int64
}

// isOver reports whether another process may be the leader.
func (t *term) isOver() bool { return int64(boottime.Now()) >= t.end.Load() }

// fence returns a transport that begins no request outside the term.
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

// lock is the Lease of the leader. It ends the term before another process may be the leader. The
// elector calls it from one goroutine.
type lock struct {
	resourcelock.Interface

	term   *term
	stop   func() // ends the election
	holder string // when the Lease was last read
}

// Get implements [resourcelock.Interface]. The election of a former leader ends as soon as the Lease
// has another holder, or none: another process may have led meanwhile.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // the elector examines it
	}
	l.holder = record.HolderIdentity
	if l.holder != l.Identity() && l.term.end.Load() != 0 {
		l.stop()
	}
	return record, raw, nil
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(func() error { return l.Interface.Create(ctx, record) })
}

// Update implements [resourcelock.Interface]. Without a holder in the record, it releases the Lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	update := func() error { return l.Interface.Update(ctx, record) }
	if record.HolderIdentity != "" {
		return l.renew(update)
	}
	l.term.end.Store(1) // before the request, whose answer may be lost
	if l.holder != l.Identity() {
		return errDeposed // the elector would take the Lease from the next leader
	}
	return update()
}

// renew makes the term last for leaderDuration from now on, if a write of the Lease succeeds. Other
// processes take the Lease over that long after they have seen the write, or later.
func (l *lock) renew(write func() error) error {
	began := boottime.Now()
	if err := write(); err != nil {
		return err
	}
	l.term.end.Store(int64(began + leaderDuration))
	return nil
}

// lead calls run once this process is the leader. The Lease is released when run has returned. If
// another process may be the leader before ctx has ended, lead returns an error, and may return
// before run does: the caller exits then.
func (t *term) lead(ctx context.Context, cfg *rest.Config, namespace string, run func(context.Context) error) error {
	lease, err := leaseOf(cfg, namespace)
	if err != nil {
		return err
	}
	electing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var leads atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if !leads.Load() {
			cancel()
		}
	})()
	done := make(chan error, 1) // holds the result of run
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &lock{Interface: lease, term: t, stop: cancel},
		LeaseDuration: leaderDuration, RenewDeadline: leaderDeadline, RetryPeriod: leaderRetry, ReleaseOnCancel: true, Name: leaderLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer cancel()
				leads.Store(true)
				running, stop := context.WithCancel(leading)
				defer context.AfterFunc(ctx, stop)()
				done <- run(running)
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
		return errDeposed
	}
	return nil
}

// leaseOf returns the Lease of the leader, for this process.
func leaseOf(cfg *rest.Config, namespace string) (*resourcelock.LeaseLock, error) {
	leases, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding a name for this process: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaderLease}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cmp.Or(os.Getenv("POD_NAME"), host) + "-" + rand.String(6)},
	}, nil
}
