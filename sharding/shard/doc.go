// Package shard distributes the objects of a controller over its replicas. Each replica, a shard,
// keeps a Lease through which the sharder detects it, sees only the objects that the sharder has
// assigned to it, and releases an object when the sharder requests it. See sharding/docs.
//
// Three changes shard a controller; its reconciler stays as it is:
//
//	s, err := shard.New(cfg, shard.Options{Ring: "website", Kinds: []client.Object{&Website{}, &appsv1.Deployment{}}})
//	...
//	mgr, err := s.NewManager(manager.Options{Scheme: scheme})
//	...
//	err = s.ControllerManagedBy(mgr).For(&Website{}).Owns(&appsv1.Deployment{}).Complete(r)
//
// A shard starts to reconcile an object only while it holds its Lease and no other shard has the
// object. Two thirds of the lease duration after it sent its last successful renewal, the shard
// loses the right to act: the contexts of reconcilers end, the manager's client refuses requests
// with [ErrFenced], and the manager's Start returns [ErrLeaseLost]. The same happens when etcd was
// restored from a backup, as the caches may then hold objects that other shards have again.
//
// A process that is frozen in the middle of sending a request can send the rest when it resumes.
// Writes that carry a resourceVersion then fail, because every move changes the object's
// resourceVersion. For effects outside the cluster, use [Shard.Fence] and check its context
// immediately before each effect.
package shard
