// Package shard makes the replicas of a controller share its objects out. Each replica, a shard,
// keeps a Lease by which the sharder knows it, sees only the objects that the sharder has assigned to
// it, and gives them away when the sharder asks for that. See sharding/docs.
//
// Three changes shard a controller, and its reconciler stays as it is:
//
//	s, err := shard.New(cfg, shard.Options{Ring: "website", Kinds: []client.Object{&Website{}, &appsv1.Deployment{}}})
//	...
//	mgr, err := s.NewManager(manager.Options{Scheme: scheme})
//	...
//	err = s.ControllerManagedBy(mgr).For(&Website{}).Owns(&appsv1.Deployment{}).Complete(r)
//
// A shard begins to reconcile an object only while it holds its Lease, and no other shard has the
// object then. Two thirds of the lease duration after it sent its last successful renewal, it has lost
// the right to act: contexts of reconcilers end, the manager's client refuses requests with [ErrFenced],
// and Start of the manager returns [ErrLeaseLost].
//
// A process that was frozen while it sent a request can send the rest of it when it wakes up. Writes
// that carry a resourceVersion fail then, as each move changes that of the object. For effects outside
// of the cluster use [Shard.Fence], and check the context just before each.
package shard
