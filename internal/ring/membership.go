package ring

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Label says of a Lease that it is a member's, and of which ring: kubectl get leases -L nodekeeper.dev/ring.
const Label = "nodekeeper.dev/ring"

const (
	// defaultDuration lets a member renew every five seconds: that is all that a quiet replica writes.
	defaultDuration = 15 * time.Second
	// releaseTimeout is how long the release of the Lease is waited for when the member is told to end. A Lease that was
	// not released expires.
	releaseTimeout = 2 * time.Second
)

// Config is what a Membership is made from. All fields are required but LeaseDuration.
type Config struct {
	// Client reads and writes the Leases.
	Client coordinationv1client.LeasesGetter
	// Namespace is where the Leases of all rings are.
	Namespace string
	// Ring is the name of this one: members of different rings do not know each other.
	Ring string
	// Identity is the name of this member and of its Lease. It must be unique among all rings of the namespace.
	Identity string
	// LeaseDuration is how long a member is ready without a renewal, in whole seconds. It renews three times as often; once it is dead
	// its Lease is deleted after four times as long. Zero: 15 seconds.
	LeaseDuration time.Duration
}

// Membership is one replica's place on a ring. Its methods but Run are safe for concurrent use.
type Membership struct {
	leases coordinationv1client.LeaseInterface
	config Config
	ring   atomic.Pointer[Ring]
	seen   map[types.UID]sighting // belongs to the goroutine of Run
}

// sighting is a Lease as it was last seen.
type sighting struct {
	resourceVersion string
	since           time.Time // when it was first seen so
}

// New returns a Membership. Its ring has no members before Run has seen some.
func New(cfg Config) *Membership {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = defaultDuration
	}
	m := &Membership{leases: cfg.Client.Leases(cfg.Namespace), config: cfg}
	m.ring.Store(&Ring{})
	return m
}

// Ring returns the ring as this member sees it now.
func (m *Membership) Ring() *Ring { return m.ring.Load() }

// Place returns the owner of a key and the rank of this member, see [Ring.Place]. As long as nobody is known the rank is 0.
func (m *Membership) Place(key string) (owner string, rank int) {
	return m.Ring().Place(key, m.config.Identity)
}

func (m *Membership) renewPeriod() time.Duration { return m.config.LeaseDuration / 3 }
func (m *Membership) orphanAfter() time.Duration { return 4 * m.config.LeaseDuration }

// Run is a member until ctx is cancelled; then it releases the Lease, for two seconds at most, and returns. It is to be called
// once.
func (m *Membership) Run(ctx context.Context) error {
	elector, err := m.elector()
	if err != nil {
		return err
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		// What the elector has to say is seen in the Lease.
		wait.UntilWithContext(klog.NewContext(ctx, logr.Discard()), elector.Run, m.renewPeriod())
	}()
	if err := m.watch(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(releaseTimeout)
	defer timer.Stop()
	select {
	case <-released:
	case <-timer.C: // the API server does not answer: the process may end without the elector
	}
	return nil
}

// elector keeps this member's Lease, and releases it in the end.
func (m *Membership) elector() (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: m.config.Namespace, Name: m.config.Identity},
			Client:     m.config.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: m.config.Identity},
			Labels:     map[string]string{Label: m.config.Ring},
		},
		LeaseDuration:   m.config.LeaseDuration,
		RenewDeadline:   2 * m.renewPeriod(),
		RetryPeriod:     m.renewPeriod(),
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the Lease of member %q: %w", m.config.Identity, err)
	}
	return elector, nil
}

// watch keeps the ring up to date until ctx is cancelled.
func (m *Membership) watch(ctx context.Context) error {
	informer := toolscache.NewSharedInformer(m.listWatch(), &coordinationv1.Lease{}, 0)
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // told already
		}
	}
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return fmt.Errorf("watching the members of ring %q: %w", m.config.Ring, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	defer wg.Wait()
	tick := time.NewTicker(m.renewPeriod()) // a member that is silent gives no event
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
		}
		if informer.HasSynced() {
			m.look(ctx, informer.GetStore().List())
		}
	}
}

func (m *Membership) listWatch() toolscache.ListerWatcher {
	selector := Label + "=" + m.config.Ring
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return m.leases.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return m.leases.Watch(ctx, options)
		},
	}
}

// look makes the ring of what the Leases say. The first of the members that are ready sees to the others' Leases.
func (m *Membership) look(ctx context.Context, all []any) {
	now := time.Now()
	seen := make(map[types.UID]sighting, len(all))
	byState := map[State][]*coordinationv1.Lease{}
	var members []string
	for _, obj := range all {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			continue // an informer of Leases holds nothing else
		}
		s := m.seen[l.UID]
		if s.resourceVersion != l.ResourceVersion {
			s = sighting{resourceVersion: l.ResourceVersion, since: now}
		}
		seen[l.UID] = s
		state := StateOf(l, now.Sub(s.since), m.orphanAfter())
		byState[state] = append(byState[state], l)
		if state.IsMember() {
			members = append(members, l.Name)
		}
	}
	m.seen = seen
	slices.Sort(members)
	if !slices.Equal(members, m.Ring().Members()) {
		m.ring.Store(NewRing(members...))
		logf.FromContext(ctx).Info("Saw another ring", "ring", m.config.Ring, "members", members)
	}
	if m.isFirst(byState[Ready]) {
		m.tidy(ctx, byState)
	}
}
