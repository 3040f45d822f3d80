// Package leasetest is an API server in memory that stores Leases. Unlike the fake of client-go, it
// has resourceVersions and preconditions, and can lose an answer after the write has happened. Use
// it for tests of timing, and a real API server to show what an API server does.
package leasetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

var (
	errDown = errors.New("the API server is away")
	errLost = errors.New("the answer was lost")
	leases  = coordinationv1.Resource("leases")
)

// Server stores the Leases of one namespace. Create it with [NewServer]. It is safe for concurrent
// use, but its exported fields must be set before the first request.
type Server struct {
	// Clock is how far its clock is ahead.
	Clock time.Duration
	// Admit changes a Lease that a client writes, like an admission plugin. It may be nil.
	Admit func(*coordinationv1.Lease)

	mu       sync.Mutex
	revision int
	leases   map[string]*coordinationv1.Lease
	watches  map[chan watch.Event]bool
	events   []watch.Event // all since the start
}

// NewServer returns a server without Leases.
func NewServer() *Server {
	return &Server{leases: map[string]*coordinationv1.Lease{}, watches: map[chan watch.Event]bool{}}
}

// Get returns a Lease, or nil if it does not exist.
func (s *Server) Get(name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].DeepCopy()
}

// Put stores a Lease as if another process had written it.
func (s *Server) Put(l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(watch.Modified, l)
}

// Remove deletes a Lease as if another process had done it.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored := s.leases[name]; stored != nil {
		s.store(watch.Deleted, stored)
	}
}

// Client returns a new client, whose connection works.
func (s *Server) Client() *Client { return &Client{server: s} }

// store stores a Lease and returns it. The caller holds the mutex.
func (s *Server) store(typ watch.EventType, l *coordinationv1.Lease) *coordinationv1.Lease {
	s.revision++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.revision)
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(time.Now().Add(s.Clock).Truncate(time.Second)))}}
	s.leases[l.Name] = l
	if typ == watch.Deleted {
		delete(s.leases, l.Name)
	}
	event := watch.Event{Type: typ, Object: l.DeepCopy()}
	s.events = append(s.events, event)
	for ch := range s.watches {
		ch <- event
	}
	return l.DeepCopy()
}

// admitted returns a Lease after admission. The caller holds the mutex.
func (s *Server) admitted(l *coordinationv1.Lease) *coordinationv1.Lease {
	if s.Admit == nil {
		return l
	}
	l = l.DeepCopy()
	s.Admit(l)
	return l
}

// Client is one process's connection to a [Server]. It is safe for concurrent use.
type Client struct {
	coordinationv1client.LeaseInterface // methods that are not used

	server *Server
	mu     sync.Mutex
	state  Connection
	writes int
}

// Connection is the state of a client's connection.
type Connection int

const (
	// Up is the state in which requests are answered.
	Up Connection = iota
	// Down is the state in which no request reaches the server.
	Down
	// Losing is the state in which the answers of successful writes are lost.
	Losing
)

// Leases returns the client itself: its server has one namespace.
func (c *Client) Leases(string) coordinationv1client.LeaseInterface { return c }

// Set changes the state of the connection.
func (c *Client) Set(state Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

// Writes returns the number of writes that were tried.
func (c *Client) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// write performs a write, if the connection is up.
func (c *Client) write(ctx context.Context, do func(*Server) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	if c.state == Down || ctx.Err() != nil {
		return nil, errDown
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	stored, err := do(c.server)
	if err == nil && c.state == Losing {
		return nil, errLost
	}
	return stored, err
}

// Create creates a Lease unless one of this name exists.
func (c *Client) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, func(s *Server) (*coordinationv1.Lease, error) {
		if s.leases[lease.Name] != nil {
			return nil, apierrors.NewAlreadyExists(leases, lease.Name)
		}
		lease.UID = types.UID("uid-" + strconv.Itoa(s.revision))
		return s.store(watch.Added, s.admitted(lease)), nil
	})
}

// Update replaces a Lease on the condition that it has the UID and resourceVersion of the argument.
func (c *Client) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, func(s *Server) (*coordinationv1.Lease, error) {
		stored := s.leases[lease.Name]
		if stored == nil {
			return nil, apierrors.NewNotFound(leases, lease.Name)
		}
		if stored.ResourceVersion != lease.ResourceVersion || stored.UID != lease.UID {
			return nil, apierrors.NewConflict(leases, lease.Name, errors.New("written since"))
		}
		return s.store(watch.Modified, s.admitted(lease)), nil
	})
}

// Delete deletes a Lease under the preconditions of the options, both of which are required.
func (c *Client) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	_, err := c.write(ctx, func(s *Server) (*coordinationv1.Lease, error) {
		stored := s.leases[name]
		if stored == nil {
			return nil, apierrors.NewNotFound(leases, name)
		}
		if *options.Preconditions.ResourceVersion != stored.ResourceVersion || *options.Preconditions.UID != stored.UID {
			return nil, apierrors.NewConflict(leases, name, errors.New("written since"))
		}
		return s.store(watch.Deleted, stored), nil
	})
	return err
}

// Get reads a Lease.
func (c *Client) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Down {
		return nil, errDown
	}
	if stored := c.server.Get(name); stored != nil {
		return stored, nil
	}
	return nil, apierrors.NewNotFound(leases, name)
}

// List reads all Leases.
func (c *Client) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.server.revision)}}
	for _, stored := range c.server.leases {
		list.Items = append(list.Items, *stored.DeepCopy())
	}
	return list, nil
}

// Watch delivers all events from a resourceVersion on. It does not stream lists.
func (c *Client) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), "", nil)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	ch := make(chan watch.Event, 10000)
	for _, event := range c.server.events {
		lease, _ := event.Object.(*coordinationv1.Lease)
		if revision, err := strconv.Atoi(lease.ResourceVersion); err == nil && revision > from {
			ch <- event
		}
	}
	c.server.watches[ch] = true
	return watch.NewProxyWatcher(ch), nil
}
