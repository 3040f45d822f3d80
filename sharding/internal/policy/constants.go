package policy

import (
	"slices"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// constants are the parts of a ring's spec that its policies contain. Resources have the form
// "apps/deployments", and kinds "apps/Deployment".
type constants struct {
	// mains are the main resources, controlling the ones that control others, and byNamespace the ones
	// whose key is the namespace.
	mains, controlling, byNamespace []string
	// keyLabels maps the main resources whose key is a label to its key.
	keyLabels map[string]string
	// owners maps the kind of a main resource and a resource that it controls, separated by a space, to
	// the main resource.
	owners map[string]string
	// hasChildren is set if some of the resources are not main resources.
	hasChildren bool
	// clusterScoped are the kinds of the cluster-scoped resources.
	clusterScoped []string
	// accounts are the names of the shards' service accounts, and namespace is their namespace.
	accounts  []string
	namespace string
}

// constantsOf returns the constants of the policies of a ring for some of its resources.
func constantsOf(ring *v1alpha1.ClusterRing, resources []Resource) constants {
	c := constants{keyLabels: map[string]string{}, owners: map[string]string{}}
	kinds := map[string]string{}
	for _, r := range resources {
		kinds[r.name()] = r.kind()
		if r.ClusterScoped {
			c.clusterScoped = append(c.clusterScoped, r.kind())
		}
	}
	for _, main := range ring.Spec.Resources {
		name := nameOf(main.GroupResource)
		c.mains = append(c.mains, name)
		if len(main.ControlledResources) > 0 {
			c.controlling = append(c.controlling, name)
		}
		switch main.Key {
		case v1alpha1.KeyNamespace:
			c.byNamespace = append(c.byNamespace, name)
		case v1alpha1.KeyLabel:
			c.keyLabels[name] = main.KeyLabel
		case v1alpha1.KeyName:
		}
		for _, controlled := range main.ControlledResources {
			if kind := kinds[name]; kind != "" { // otherwise it is not served
				c.owners[kind+" "+nameOf(controlled)] = name
			}
		}
	}
	c.hasChildren = slices.ContainsFunc(resources, func(r Resource) bool { return !slices.Contains(c.mains, r.name()) })
	c.accounts, c.namespace = slices.Clone(ring.Spec.Shards.ServiceAccounts), ring.Spec.Shards.Namespace
	for _, all := range [][]string{c.mains, c.controlling, c.byNamespace, c.accounts} {
		slices.Sort(all)
	}
	return c
}

// isAccount returns an expression that is true if the caller of a request has one of the shards'
// service accounts.
func (c constants) isAccount() string {
	const user = "request.userInfo.username"
	if c.namespace == v1alpha1.AnyNamespace {
		return user + ".startsWith('" + accountPrefix + "') && " + user + ".split(':')[?3].orValue('') in " + list(c.accounts)
	}
	var users []string
	for _, account := range c.accounts {
		users = append(users, accountPrefix+c.namespace+":"+account)
	}
	return user + " in " + list(users)
}

// isShard returns an expression that is true if the caller of a request can be the shard that an
// object had. The arguments are expressions for that shard and for whether the object is still being
// drained. If the accounts of the shards are unknown, that is a caller in a pod of that name. Outside
// of pods it is a caller that may renew the Lease of the shard, and has removed only the label of the
// shard. Many clients may renew Leases; their updates without any labels must not count.
func (c constants) isShard(shard, draining string) string {
	if len(c.accounts) > 0 {
		return c.isAccount()
	}
	lease := "authorizer.group('coordination.k8s.io').resource('leases')"
	if c.namespace != v1alpha1.AnyNamespace {
		lease += ".namespace(" + quote(c.namespace) + ")"
	}
	return "(" + callerPod + " != '' ? " + callerPod + " == " + shard +
		" : " + draining + " && " + lease + ".name(" + shard + ").check('update').allowed())"
}
