package shard

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// Shard is one replica of a controller. Its methods are safe for concurrent use.
type Shard struct {
	config  *rest.Config
	options Options
	keeper  *shardlease.Keeper
	right   *right
	metrics *observations
	// mgr is what NewManager has made. Live reads and writes without a cache, and is fenced.
	mgr  manager.Manager
	live client.Client
	// namespaces are those of which a kind is cached, none for all.
	namespaces map[schema.GroupKind][]string
	// caches are those of the shard's kinds.
	caches caches
	// acquired is the Lease as the first renewal of this process has stored it.
	acquired atomic.Pointer[coordinationv1.Lease]
	// isDirect reports whether the sharder has said, on the Lease as it was last renewed, that no
	// objects of the ring have children. It labels none before it knows that this shard has heard
	// otherwise.
	isDirect atomic.Bool

	mu sync.Mutex
	// mains are the kinds that controllers reconcile.
	mains map[schema.GroupKind]*mainKind
}

// mainKind is a kind that controllers reconcile.
type mainKind struct {
	gate *gate
	kind schema.GroupVersionKind
	// object is one of the type by which the first of the controllers sees the kind.
	object client.Object
	// isIdle says that the controller does nothing but answer the sharder.
	isIdle bool
}

// New returns a shard. It does no I/O: the Lease is kept from the start of the manager on, see
// [Shard.NewManager].
func New(cfg *rest.Config, o Options) (*Shard, error) {
	o, err := o.completed()
	if err != nil {
		return nil, fmt.Errorf("preparing a shard: %w", err)
	}
	s := &Shard{config: cfg, options: o, mains: map[schema.GroupKind]*mainKind{}, namespaces: map[schema.GroupKind][]string{}}
	if o.Standalone {
		return s, nil
	}
	s.right = newRight(renewDeadline(o.LeaseDuration))
	leases, err := coordinationv1client.NewForConfig(s.right.fence(cfg))
	if err != nil {
		return nil, fmt.Errorf("preparing a shard: %w", err)
	}
	s.metrics = newObservations(o.Ring, s.count)
	s.keeper = shardlease.NewKeeper(shardlease.Config{
		Client: leases, Namespace: o.Namespace, Name: o.Name, Duration: o.LeaseDuration,
		Labels:      map[string]string{o.LabelPrefix.RingLabel(): o.Ring},
		Annotations: map[string]string{o.LabelPrefix.ProtocolAnnotation(): v1alpha1.Protocol2},
		Renewed:     s.renewed,
		Lost:        s.right.end,
	})
	return s, nil
}

// renewDeadline returns for how long a shard may act after it sent a renewal. The sharder waits three times
// as long before it moves the objects of a silent shard.
func renewDeadline(duration time.Duration) time.Duration { return duration * 2 / 3 }

// renewed notes that a renewal is stored.
func (s *Shard) renewed() {
	if s.acquired.Load() == nil {
		s.acquired.Store(s.keeper.First())
	}
	s.isDirect.Store(s.keeper.Stored().Labels[s.options.LabelPrefix.HandoverLabel()] == v1alpha1.HandoverDirect)
	if s.right.renewed(s.keeper.LastRenewal().Sub(start)) {
		s.keeper.Renew()
	}
}

// since returns the resourceVersion at which this process has got its Lease, "" if it has not.
func (s *Shard) since() string {
	if l := s.acquired.Load(); l != nil {
		return l.ResourceVersion
	}
	return ""
}

// NewManager returns a manager whose caches of the shard's Kinds hold only the objects of this shard, and
// whose client is fenced: writes wait until the shard holds its Lease, and it sends nothing once the shard
// has lost the Lease. All other options work as usual, among them leader election for controllers that are
// not sharded. Call NewManager once.
//
// Start keeps the Lease. When its context ends, the shard asks the sharder to move its objects, goes on
// with those that it still has, ends the controllers when none is left or after LeaveTimeout, and
// releases the Lease. It returns [ErrLeaseLost] if this shard has lost the right to act: the process
// must end then, also if a reconciler does not return.
func (s *Shard) NewManager(o manager.Options) (manager.Manager, error) {
	if s.options.Standalone {
		return manager.New(s.config, o) //nolint:wrapcheck // nothing is added to it
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	byObject, err := s.filtered(o.Cache, o.Scheme)
	if err != nil {
		return nil, fmt.Errorf("preparing the caches of a shard: %w", err)
	}
	o.Cache.ByObject = byObject
	o.NewClient = s.newClient(o.NewClient)
	o.BaseContext = s.right.under(o.BaseContext)
	mgr, err := manager.New(s.config, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // nothing is added to it
	}
	s.live, err = s.newClient(nil)(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	s.mgr = mgr
	return &sharded{Manager: mgr, shard: s}, nil
}

// shares reports whether a kind is one of the shard's.
func (s *Shard) shares(kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(s.options.Kinds, func(object client.Object) bool {
		own, err := apiutil.GVKForObject(object, s.mgr.GetScheme())
		return err == nil && own == kind
	})
}

// note notes by which type a kind is cached, if it is one of the shard's.
func (s *Shard) note(object client.Object) {
	if kind, err := apiutil.GVKForObject(object, s.mgr.GetScheme()); err == nil && s.shares(kind) {
		s.caches.add(kind.GroupKind(), object)
	}
}

// gateOf returns the gate of a kind that a controller reconciles by the type of an object, and whether that
// is the first by this type.
func (s *Shard) gateOf(kind schema.GroupVersionKind, object client.Object) (g *gate, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	main := s.mains[kind.GroupKind()]
	if main == nil {
		main = &mainKind{gate: &gate{}, kind: kind, object: object}
		s.mains[kind.GroupKind()] = main
	}
	return main.gate, main.gate.see(reflect.TypeOf(object))
}

// reconciled returns the kinds that controllers reconcile.
func (s *Shard) reconciled() []*mainKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*mainKind
	for _, m := range s.mains {
		if !m.isIdle {
			all = append(all, m)
		}
	}
	return all
}

// isReconciled reports whether a controller answers the sharder about a kind.
func (s *Shard) isReconciled(kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mains[kind] != nil
}

func (s *Shard) setIdle(kind schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mains[kind].isIdle = true
}

// isAtWork reports whether a reconciler has not returned.
func (s *Shard) isAtWork() bool {
	return slices.ContainsFunc(s.reconciled(), func(m *mainKind) bool { return m.gate.isAtWork() })
}
