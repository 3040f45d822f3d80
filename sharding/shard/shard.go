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

	"nodekeeper.dev/internal/daemon/rewind"
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
	// mgr is the manager made by NewManager. live is a fenced client without a cache.
	mgr  manager.Manager
	live client.Client
	// namespaces are the cached namespaces of each kind, or none if all are cached.
	namespaces map[schema.GroupKind][]string
	// caches are the caches of the shard's kinds.
	caches caches
	// detector detects that etcd was restored from a backup.
	detector *rewind.Detector
	// version is that of the Lease as last renewed. It belongs to the keeper.
	version string
	// acquired is the Lease as stored by the first renewal of this process.
	acquired atomic.Pointer[coordinationv1.Lease]
	// direct is set if the Lease, as last renewed, carries the sharder's label that no objects of
	// the ring have labelled children. The sharder removes that label, and waits until this shard
	// has renewed its Lease, before it labels any children.
	direct atomic.Bool

	mu sync.Mutex
	// mains are the kinds that controllers reconcile.
	mains map[schema.GroupKind]*mainKind
}

// mainKind is a kind that controllers reconcile.
type mainKind struct {
	passages *passages
	kind     schema.GroupVersionKind
	// object has the type under which the first of the controllers watches the kind.
	object client.Object
	// idle is set if the only controller of the kind is the one of acknowledgeRest.
	idle bool
}

// New returns a shard. It does no I/O: the Lease is kept once the manager starts, see
// [Shard.NewManager]. It returns an error if the options are invalid.
func New(cfg *rest.Config, o Options) (*Shard, error) {
	o, err := o.completed()
	if err != nil {
		return nil, fmt.Errorf("preparing a shard: %w", err)
	}
	s := &Shard{config: cfg, options: o, detector: rewind.New(), mains: map[schema.GroupKind]*mainKind{}, namespaces: map[schema.GroupKind][]string{}}
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

// renewDeadline returns how long a shard may act after it sent a renewal. The sharder waits three
// times as long before it moves the objects of a silent shard.
func renewDeadline(duration time.Duration) time.Duration { return duration * 2 / 3 }

// renewed handles a successful renewal of the Lease. It runs in the goroutine of the keeper.
func (s *Shard) renewed() {
	before := s.version
	s.version = s.keeper.Stored().ResourceVersion
	if before != "" && s.detector.Compare(before, s.version) != nil {
		return // see endIfRewound
	}
	if s.acquired.Load() == nil {
		s.acquired.Store(s.keeper.First())
	}
	s.direct.Store(s.keeper.Stored().Labels[s.options.LabelPrefix.HandoverLabel()] == v1alpha1.HandoverDirect)
	if s.right.renewed(s.keeper.LastRenewal().Sub(start)) {
		s.keeper.Renew()
	}
}

// since returns the resourceVersion at which this process acquired its Lease, or "" if it has not.
func (s *Shard) since() string {
	if l := s.acquired.Load(); l != nil {
		return l.ResourceVersion
	}
	return ""
}

// NewManager returns a manager whose caches hold only this shard's objects of the Kinds. Its client
// is fenced: writes wait until the shard may act, and all requests are refused once the shard has
// lost the right to act. Other options work as usual, including leader election for controllers
// that are not sharded. Call NewManager once.
//
// Start keeps the Lease. When its context ends, the shard asks the sharder to move its objects and
// continues to reconcile the ones that it still has. When none is left, or after LeaveTimeout,
// Start stops the controllers and releases the Lease. With KeepObjects, it only stops the
// controllers. It returns [ErrLeaseLost] if this shard has lost the right to act; the process must
// then exit, even if a reconciler does not return.
func (s *Shard) NewManager(o manager.Options) (manager.Manager, error) {
	if s.options.Standalone {
		return manager.New(s.config, o) //nolint:wrapcheck // the error needs no context
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	byObject, err := s.filtered(o.Cache, o.Scheme)
	if err != nil {
		return nil, fmt.Errorf("preparing the caches of a shard: %w", err)
	}
	o.Cache.ByObject, o.Cache.NewInformer = byObject, s.detector.Informers(o.Cache.NewInformer)
	o.NewClient = s.newClient(o.NewClient)
	o.BaseContext = s.right.baseContext(o.BaseContext)
	mgr, err := manager.New(s.config, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error needs no context
	}
	s.live, err = s.newClient(nil)(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	s.mgr = mgr
	return &sharded{Manager: mgr, shard: s}, nil
}

// isSharded reports whether a kind is one of the shard's Kinds.
func (s *Shard) isSharded(kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(s.options.Kinds, func(object client.Object) bool {
		own, err := apiutil.GVKForObject(object, s.mgr.GetScheme())
		return err == nil && own == kind
	})
}

// recordType records the Go type under which a kind is cached if it is one of the shard's Kinds.
func (s *Shard) recordType(object client.Object) {
	if kind, err := apiutil.GVKForObject(object, s.mgr.GetScheme()); err == nil && s.isSharded(kind) {
		s.caches.add(kind.GroupKind(), object)
	}
}

// passagesOf returns the passages of a kind, and reports whether the object's type is new among the
// types under which controllers watch the kind.
func (s *Shard) passagesOf(kind schema.GroupVersionKind, object client.Object) (g *passages, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	main := s.mains[kind.GroupKind()]
	if main == nil {
		main = &mainKind{passages: &passages{}, kind: kind, object: object}
		s.mains[kind.GroupKind()] = main
	}
	return main.passages, main.passages.addView(reflect.TypeOf(object))
}

// reconciled returns the kinds that controllers reconcile.
func (s *Shard) reconciled() []*mainKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*mainKind
	for _, m := range s.mains {
		if !m.idle {
			all = append(all, m)
		}
	}
	return all
}

// isReconciled reports whether any controller answers the sharder about a kind.
func (s *Shard) isReconciled(kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mains[kind] != nil
}

func (s *Shard) setIdle(kind schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mains[kind].idle = true
}

// isAtWork reports whether a reconciler has not returned yet.
func (s *Shard) isAtWork() bool {
	return slices.ContainsFunc(s.reconciled(), func(m *mainKind) bool { return m.passages.isAtWork() })
}
