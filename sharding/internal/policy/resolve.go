package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	// establishedFor is how long a custom resource must have been established before a policy may
	// list it. In spite of failure policy Ignore, the API server refuses objects that a policy
	// matches until it has read their schema, which takes about seven seconds.
	establishedFor = 30 * time.Second
	// missingPeriod is the interval between checks for a resource without a CRD. No event signals
	// that an aggregated API becomes available.
	missingPeriod = 30 * time.Second
)

// CRDKind is the kind of CustomResourceDefinitions.
var CRDKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// CRD returns an object for watching the metadata of CRDs.
func CRD() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(CRDKind)
	return crd
}

// CacheOptions returns cache options for the kinds that this package watches. Of CRDs, the cache
// keeps only what is needed to detect changes, and of ConfigMaps only those in the namespace of the
// sharder.
func CacheOptions(namespace string) map[client.Object]cache.ByObject {
	strip := func(in any) (any, error) {
		if o, ok := in.(client.Object); ok {
			o.SetManagedFields(nil)
			o.SetAnnotations(nil)
		}
		return in, nil
	}
	return map[client.Object]cache.ByObject{
		CRD():               {Transform: strip},
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}},
	}
}

// Discovery lists the resources that the API server serves, like a discovery client.
type Discovery interface {
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// Resources determines which resources the API server serves. All exported fields are required. It
// is safe for concurrent use.
type Resources struct {
	// Reader reads CRDs from the API server. It must not use a cache.
	Reader    client.Reader
	Discovery Discovery
	// Clock returns the API server's time, or zero if it is unknown.
	Clock func() time.Time
	// NeedNoSchema makes resources count as soon as their CRD is established, as webhooks need no
	// schema.
	NeedNoSchema bool

	mu sync.Mutex
	// custom are the resources that had a CRD at some time. For these, discovery is not consulted,
	// because it can be out of date after the CRD is deleted.
	custom map[v1alpha1.GroupResource]bool
}

// found lists the resources of a ring that policies may include.
type found struct {
	resources []Resource
	// waiting describes why each of the other resources is missing.
	waiting []string
	// recheck is the delay before the next check, or zero if an event will trigger it.
	recheck time.Duration
}

// maxNamed is the number of missing resources that a condition lists. A ring can have a thousand.
const maxNamed = 5

// missing describes which resources are missing and why.
func (f *found) missing() string {
	text := strings.Join(f.waiting[:min(len(f.waiting), maxNamed)], "; ")
	if more := len(f.waiting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// wait records that a resource is missing.
func (f *found) wait(r v1alpha1.GroupResource, why string, recheck time.Duration) {
	f.waiting = append(f.waiting, strings.TrimSuffix(r.Resource+"."+r.Group, ".")+" "+why)
	if recheck > 0 && (f.recheck == 0 || recheck < f.recheck) {
		f.recheck = recheck
	}
}

// Served returns the resources of a ring that the API server serves, and the delay before the next
// check, or zero if an event of a ring or a CRD triggers it.
func (r *Resources) Served(ctx context.Context, ring *v1alpha1.ClusterRing) (all []Resource, recheck time.Duration, err error) {
	f, err := r.of(ctx, ring)
	return f.resources, f.recheck, err
}

// of returns the resources of a ring. It omits resources that the ring's status does not record as
// labelled: the sharder would not remove labels from their objects.
func (r *Resources) of(ctx context.Context, ring *v1alpha1.ClusterRing) (f found, err error) {
	var served []*metav1.APIResourceList // read at most once
	for _, resource := range resourcesOf(ring) {
		if !slices.Contains(ring.Status.LabelledResources, resource) {
			f.wait(resource, "is not in the status of the ring yet", 0)
			continue
		}
		isCustom, err := r.findCustom(ctx, resource, &f)
		if err != nil {
			return f, err
		}
		if isCustom {
			continue
		}
		if served == nil {
			_, served, err = r.Discovery.ServerGroupsAndResources()
			if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // other groups are still usable
				return f, fmt.Errorf("discovering resources: %w", err)
			}
		}
		if one := findServed(served, resource); one != nil {
			f.resources = append(f.resources, *one)
		} else {
			f.wait(resource, "is not served", missingPeriod)
		}
	}
	return f, nil
}

// resourcesOf returns all resources of a ring without duplicates.
func resourcesOf(ring *v1alpha1.ClusterRing) (all []v1alpha1.GroupResource) {
	add := func(r v1alpha1.GroupResource) {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	for _, main := range ring.Spec.Resources {
		add(main.GroupResource)
		for _, controlled := range main.ControlledResources {
			add(controlled)
		}
	}
	return all
}

// definition contains the fields of a CRD that this package uses.
type definition struct {
	Spec struct {
		Scope string `json:"scope"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Served       bool `json:"served"`
			Subresources struct {
				Status *struct{} `json:"status"`
			} `json:"subresources"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// findCustom adds a resource that is defined by a CRD. It returns false if the resource has no CRD
// and never had one.
func (r *Resources) findCustom(ctx context.Context, resource v1alpha1.GroupResource, f *found) (isCustom bool, err error) {
	if !strings.Contains(resource.Group, ".") {
		return false, nil // the API server rejects CRDs of such groups
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(CRDKind)
	err = r.Reader.Get(ctx, types.NamespacedName{Name: resource.Resource + "." + resource.Group}, crd)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the CRD of %s.%s: %w", resource.Resource, resource.Group, err)
	}
	if apierrors.IsNotFound(err) || crd.GetDeletionTimestamp() != nil {
		if !r.wasCustom(resource, err == nil) {
			return false, nil
		}
		f.wait(resource, "has no CRD", 0)
		return true, nil
	}
	r.wasCustom(resource, true)
	var d definition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &d); err != nil {
		return false, fmt.Errorf("reading the CRD of %s.%s: %w", resource.Resource, resource.Group, err)
	}
	since := d.established()
	now := r.Clock()
	switch {
	case since.IsZero():
		f.wait(resource, "is not established", 0)
	case !r.NeedNoSchema && now.Sub(since) < establishedFor:
		f.wait(resource, "is new: the API server may not have its schema yet", since.Add(establishedFor+time.Second).Sub(now))
	default:
		f.resources = append(f.resources, d.resource(resource))
	}
	return true, nil
}

// wasCustom reports whether a resource has or had a CRD.
func (r *Resources) wasCustom(resource v1alpha1.GroupResource, isCustom bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isCustom {
		if r.custom == nil {
			r.custom = map[v1alpha1.GroupResource]bool{}
		}
		r.custom[resource] = true
	}
	return r.custom[resource]
}

// established returns when the resource was established, or zero if it is not.
func (d *definition) established() time.Time {
	for _, c := range d.Status.Conditions {
		if c.Type == "Established" && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func (d *definition) resource(r v1alpha1.GroupResource) Resource {
	one := Resource{GroupResource: r, Kind: d.Spec.Names.Kind, ClusterScoped: d.Spec.Scope == "Cluster"}
	for _, version := range d.Spec.Versions {
		one.Status = one.Status || version.Served && version.Subresources.Status != nil
	}
	return one
}

// findServed returns a resource according to discovery, or nil if it is not served.
func findServed(lists []*metav1.APIResourceList, r v1alpha1.GroupResource) *Resource {
	var one *Resource
	hasStatus := false
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group != r.Group {
			continue
		}
		for _, served := range list.APIResources {
			if served.Name == r.Resource && one == nil {
				one = &Resource{GroupResource: r, Kind: served.Kind, ClusterScoped: !served.Namespaced}
			}
			hasStatus = hasStatus || served.Name == r.Resource+"/status"
		}
	}
	if one != nil {
		one.Status = hasStatus
	}
	return one
}
