package ring_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

var (
	errDown = errors.New("the API server is away")
	errLost = errors.New("the answer was lost")
	leases  = coordinationv1.Resource("leases")
)

// cluster is an API server in memory that stores Leases of one namespace, with resourceVersions,
// UIDs and preconditions.
type cluster struct {
	mu       sync.Mutex
	revision int
	leases   map[string]*coordinationv1.Lease
	watches  map[chan watch.Event]bool
	events   []watch.Event // all since the start
	clock    time.Duration // how far its clock is ahead
	// admit changes a Lease that a member writes, like an admission plugin. It may be nil.
	admit func(*coordinationv1.Lease)
}

func newCluster() *cluster {
	return &cluster{leases: map[string]*coordinationv1.Lease{}, watches: map[chan watch.Event]bool{}}
}

// store stores a Lease and returns it. The caller holds the mutex.
func (c *cluster) store(typ watch.EventType, l *coordinationv1.Lease) *coordinationv1.Lease {
	c.revision++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(c.revision)
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(time.Now().Add(c.clock).Truncate(time.Second)))}}
	c.leases[l.Name] = l
	if typ == watch.Deleted {
		delete(c.leases, l.Name)
	}
	event := watch.Event{Type: typ, Object: l.DeepCopy()}
	c.events = append(c.events, event)
	for ch := range c.watches {
		ch <- event
	}
	return l.DeepCopy()
}

// admitted returns a Lease after admission. The caller holds the mutex.
func (c *cluster) admitted(l *coordinationv1.Lease) *coordinationv1.Lease {
	if c.admit == nil {
		return l
	}
	l = l.DeepCopy()
	c.admit(l)
	return l
}

// get returns a Lease, or nil if it does not exist.
func (c *cluster) get(name string) *coordinationv1.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[name].DeepCopy()
}

// put stores a Lease as if another process had written it.
func (c *cluster) put(l *coordinationv1.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(watch.Modified, l)
}

// link is one process's connection to the cluster.
type link struct {
	coordinationv1client.LeaseInterface // unused methods

	cluster *cluster
	mu      sync.Mutex
	down    bool // rejects every call
	losing  bool // loses the responses of writes
	writes  int
}

func (l *link) Leases(string) coordinationv1client.LeaseInterface { return l }

func (l *link) set(down, losing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.losing = down, losing
}

func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// write performs a write, if the link is up.
func (l *link) write(ctx context.Context, do func(c *cluster) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.down || ctx.Err() != nil {
		return nil, errDown
	}
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	stored, err := do(l.cluster)
	if err == nil && l.losing {
		return nil, errLost
	}
	return stored, err
}

func (l *link) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, func(c *cluster) (*coordinationv1.Lease, error) {
		if c.leases[lease.Name] != nil {
			return nil, apierrors.NewAlreadyExists(leases, lease.Name)
		}
		lease.UID = types.UID("uid-" + strconv.Itoa(c.revision))
		return c.store(watch.Added, c.admitted(lease)), nil
	})
}

func (l *link) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, func(c *cluster) (*coordinationv1.Lease, error) {
		stored := c.leases[lease.Name]
		if stored == nil {
			return nil, apierrors.NewNotFound(leases, lease.Name)
		}
		if stored.ResourceVersion != lease.ResourceVersion || stored.UID != lease.UID {
			return nil, apierrors.NewConflict(leases, lease.Name, errors.New("written since"))
		}
		return c.store(watch.Modified, c.admitted(lease)), nil
	})
}

func (l *link) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	_, err := l.write(ctx, func(c *cluster) (*coordinationv1.Lease, error) {
		stored := c.leases[name]
		if stored == nil {
			return nil, apierrors.NewNotFound(leases, name)
		}
		if *options.Preconditions.ResourceVersion != stored.ResourceVersion || *options.Preconditions.UID != stored.UID {
			return nil, apierrors.NewConflict(leases, name, errors.New("written since"))
		}
		return c.store(watch.Deleted, stored), nil
	})
	return err
}

func (l *link) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	if stored := l.cluster.get(name); stored != nil {
		return stored, nil
	}
	return nil, apierrors.NewNotFound(leases, name)
}

func (l *link) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(l.cluster.revision)}}
	for _, stored := range l.cluster.leases {
		list.Items = append(list.Items, *stored.DeepCopy())
	}
	return list, nil
}

// Watch delivers all events from a resourceVersion on.
func (l *link) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), "", nil) // no streaming lists
	}
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	ch := make(chan watch.Event, 10000)
	for _, event := range l.cluster.events {
		lease, _ := event.Object.(*coordinationv1.Lease)
		if revision, err := strconv.Atoi(lease.ResourceVersion); err == nil && revision > from {
			ch <- event
		}
	}
	l.cluster.watches[ch] = true
	return watch.NewProxyWatcher(ch), nil
}

// replica is a member that runs over a link.
type replica struct {
	*ring.Member
	*link

	leave func() // stops it and waits until it has stopped
}

// die ends it like kill -9.
func (r *replica) die() {
	r.set(true, false)
	r.leave()
}

// join starts a member of the default duration, which stops at the end of the test.
func (c *cluster) join(t *testing.T, name string) *replica {
	t.Helper()
	return c.joinWith(t, name, nil)
}

// joinWith starts a member whose Lease has annotations from the start.
func (c *cluster) joinWith(t *testing.T, name string, about map[string]string) *replica {
	t.Helper()
	l := &link{cluster: c}
	m := ring.New(ring.Config{
		Config: shardlease.Config{Client: l, Namespace: "default", Name: name, Annotations: about}, GroupLabel: label, Group: "web",
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	leave := func() {
		if ctx.Err() == nil {
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(leave)
	synctest.Wait()
	return &replica{Member: m, link: l, leave: leave}
}
