package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/api/sharding/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// Shard is one replica of a controller. Its methods are safe for concurrent use.
type Shard struct {
	config  *rest.Config
	options Options
	keeper  *shardlease.Keeper
	right   *right
	metrics *observations
	// live reads and writes without a cache, and is fenced. NewManager sets it.
	live client.Client

	mu sync.Mutex
	// gates are those of the kinds that controllers reconcile.
	gates map[schema.GroupKind]*gate
}

// New returns a shard. It does no I/O: the Lease is kept from the start of the manager on, see
// [Shard.NewManager].
func New(cfg *rest.Config, o Options) (*Shard, error) {
	o, err := o.completed()
	if err != nil {
		return nil, fmt.Errorf("preparing a shard: %w", err)
	}
	s := &Shard{config: cfg, options: o, gates: map[schema.GroupKind]*gate{}}
	if o.Standalone {
		return s, nil
	}
	leases, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing a shard: %w", err)
	}
	s.right = newRight(renewDeadline(o.LeaseDuration))
	s.metrics = newObservations(o.Ring)
	s.keeper = shardlease.NewKeeper(shardlease.Config{
		Client: leases, Namespace: o.Namespace, Name: o.Name, Duration: o.LeaseDuration,
		Labels:      map[string]string{o.LabelPrefix.RingLabel(): o.Ring},
		Annotations: map[string]string{o.LabelPrefix.ProtocolAnnotation(): v1alpha1.Protocol2},
		Renewed: func() {
			if s.right.renewed(s.keeper.LastRenewal()) {
				s.keeper.Renew()
			}
		},
		Lost: s.right.end,
	})
	return s, nil
}

// renewDeadline returns for how long a shard may act after it sent a renewal. The sharder moves its
// objects at the earliest after three times as long.
func renewDeadline(duration time.Duration) time.Duration { return duration * 2 / 3 }

// NewManager returns a manager whose caches of the shard's Kinds hold only the objects of this shard, and
// whose client is fenced. Options work as usual otherwise; leader election, too, for controllers that
// are not sharded.
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
	byObject, err := s.filtered(o.Cache.ByObject, o.Scheme)
	if err != nil {
		return nil, err
	}
	o.Cache.ByObject = byObject
	o.NewClient = s.newClient(o.NewClient)
	mgr, err := manager.New(s.config, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // nothing is added to it
	}
	s.live, err = s.newClient(nil)(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return &sharded{Manager: mgr, shard: s}, nil
}

// filtered returns which objects of each kind are cached: of the Kinds, those of this shard alone.
func (s *Shard) filtered(byObject map[client.Object]cache.ByObject, scheme *runtime.Scheme) (map[client.Object]cache.ByObject, error) {
	own, err := labels.NewRequirement(s.options.LabelPrefix.ShardLabel(s.options.Ring), selection.Equals, []string{s.options.Name})
	if err != nil {
		return nil, fmt.Errorf("selecting the objects of ring %q: %w", s.options.Ring, err)
	}
	filtered, given := map[client.Object]cache.ByObject{}, map[schema.GroupKind]client.Object{}
	for object, by := range byObject {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("reading the options of the cache: %w", err)
		}
		filtered[object], given[kind.GroupKind()] = by, object
	}
	for _, object := range s.options.Kinds {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, fmt.Errorf("Kinds has %T, which the scheme of the manager does not know: %w", object, err)
		}
		if other, ok := given[kind.GroupKind()]; ok {
			object = other
		}
		filtered[object] = narrow(filtered[object], *own)
	}
	return filtered, nil
}

// narrow adds a requirement to what is cached.
func narrow(by cache.ByObject, own labels.Requirement) cache.ByObject {
	by.Label = also(by.Label, own)
	namespaces := by.Namespaces
	by.Namespaces = nil
	for name, config := range namespaces {
		if config.LabelSelector != nil {
			config.LabelSelector = also(config.LabelSelector, own)
		}
		if by.Namespaces == nil {
			by.Namespaces = map[string]cache.Config{}
		}
		by.Namespaces[name] = config
	}
	return by
}

func also(selector labels.Selector, own labels.Requirement) labels.Selector {
	if selector == nil {
		selector = labels.Everything()
	}
	return selector.Add(own)
}

// gateOf returns the gate of a kind, or nil unless it is one of the shard's.
func (s *Shard) gateOf(kind schema.GroupKind, scheme *runtime.Scheme) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.options.Kinds {
		if own, err := apiutil.GVKForObject(object, scheme); err != nil || own.GroupKind() != kind {
			continue
		}
		if s.gates[kind] == nil {
			s.gates[kind] = &gate{}
			s.metrics.observe(s.gates[kind])
		}
		return s.gates[kind]
	}
	return nil
}

// leave tells the sharder that this shard gives its objects away, and returns when it has none, after
// LeaveTimeout, or when ctx ends.
func (s *Shard) leave(ctx context.Context, isEmpty func(context.Context) bool) {
	ctx, cancel := context.WithTimeout(ctx, s.options.LeaveTimeout)
	defer cancel()
	s.keeper.Annotate(s.options.LabelPrefix.LeavingAnnotation(), "true")
	tick := time.NewTicker(leavePeriod)
	defer tick.Stop()
	for !isEmpty(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
