package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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
	// establishedFor is how long a custom resource must have been served before a policy may name it. In
	// spite of Ignore, the API server refuses objects that a policy matches until it has read the schema,
	// which takes about seven seconds.
	establishedFor = 30 * time.Second
	// missingPeriod is the time between two looks for a resource that no CRD defines. Nothing tells when an
	// aggregated API comes.
	missingPeriod = 30 * time.Second
)

// CRDKind is the kind of what defines custom resources.
var CRDKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// CacheOptions returns how to cache what this package watches: of CRDs, only that they change.
func CacheOptions() map[client.Object]cache.ByObject {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(CRDKind)
	strip := func(in any) (any, error) {
		if o, ok := in.(client.Object); ok {
			o.SetManagedFields(nil)
			o.SetAnnotations(nil)
		}
		return in, nil
	}
	return map[client.Object]cache.ByObject{crd: {Transform: strip}}
}

// Discovery tells all resources, as a discovery client does.
type Discovery interface {
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// Resources finds out which resources the API server serves. All exported fields are required. It is safe
// for concurrent use.
type Resources struct {
	// Reader reads CRDs, not from a cache.
	Reader    client.Reader
	Discovery Discovery
	// Clock returns the API server's time, zero if it is not known.
	Clock func() time.Time

	mu sync.Mutex
	// custom are the resources that were seen to have a CRD: without one, discovery can be late.
	custom map[v1alpha1.GroupResource]bool
}

// found are the resources of a ring that policies may name.
type found struct {
	resources []Resource
	// waiting says why each of the others is missing.
	waiting []string
	// again is when to look again, zero if an event will tell.
	again time.Duration
}

// maxNamed is how many missing resources a condition names: a ring can have a thousand.
const maxNamed = 5

// missing says which resources are missing, and why.
func (f *found) missing() string {
	text := strings.Join(f.waiting[:min(len(f.waiting), maxNamed)], "; ")
	if more := len(f.waiting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// wait notes that a resource is missing.
func (f *found) wait(r v1alpha1.GroupResource, why string, again time.Duration) {
	f.waiting = append(f.waiting, strings.TrimSuffix(r.Resource+"."+r.Group, ".")+" "+why)
	if again > 0 && (f.again == 0 || again < f.again) {
		f.again = again
	}
}

// of returns the resources of a ring. Those that the ring does not record are left out, as nobody would
// remove labels from their objects.
func (r *Resources) of(ctx context.Context, ring *v1alpha1.ClusterRing) (f found, err error) {
	var served []*metav1.APIResourceList // asked for at most once
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
			if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // the others are there
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

// resourcesOf returns all resources of a ring, each once.
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

// definition is what counts of a CRD.
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

// findCustom adds a resource that a CRD defines. It reports false if none does, and never has.
func (r *Resources) findCustom(ctx context.Context, resource v1alpha1.GroupResource, f *found) (isCustom bool, err error) {
	if !strings.Contains(resource.Group, ".") {
		return false, nil // the API server accepts no such CRD
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
	case now.Sub(since) < establishedFor:
		f.wait(resource, "is new: the API server may not know its schema yet", since.Add(establishedFor+time.Second).Sub(now))
	default:
		f.resources = append(f.resources, d.resource(resource))
	}
	return true, nil
}

// wasCustom reports whether a resource has, or had, a CRD.
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

// established returns since when the resource is served, zero if it is not.
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

// findServed returns what discovery says of a resource, nil if it says nothing.
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
