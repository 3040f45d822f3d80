package policy

import "nodekeeper.dev/sharding/api/v1alpha1"

// Resource is a resource that the API server serves.
type Resource struct {
	v1alpha1.GroupResource

	Kind          string
	ClusterScoped bool
	// Status is set if the resource has a status subresource. Writes to it can change the labels of
	// objects of most core kinds.
	Status bool
}

// name returns the resource in the form "apps/deployments" or "/pods".
func (r Resource) name() string { return nameOf(r.GroupResource) }

func nameOf(r v1alpha1.GroupResource) string { return r.Group + "/" + r.Resource }

// kind returns the kind in the form "apps/Deployment" or "/Pod", as used in keys of objects.
func (r Resource) kind() string { return r.Group + "/" + r.Kind }
