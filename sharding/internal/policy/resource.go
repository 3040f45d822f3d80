package policy

import "nodekeeper.dev/sharding/api/v1alpha1"

// Resource is a resource that the API server serves.
type Resource struct {
	v1alpha1.GroupResource

	Kind          string
	ClusterScoped bool
	// Status says whether objects have a status subresource. The labels of most core kinds can be changed
	// by it.
	Status bool
}

// name returns the resource as in "apps/deployments", or "/pods".
func (r Resource) name() string { return r.Group + "/" + r.Resource }

// kind returns the kind as in the key of an object: "apps/Deployment", or "/Pod".
func (r Resource) kind() string { return r.Group + "/" + r.Kind }
