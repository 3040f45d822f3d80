package place

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// Key returns the key that determines the slot of an object with the given labels. The argument o
// is the object itself, or the main object that controls it.
func Key(main v1alpha1.Resource, labels map[string]string, o slots.Object) string {
	switch main.Key {
	case v1alpha1.KeyNamespace:
		return o.Namespace
	case v1alpha1.KeyLabel:
		if value, ok := labels[main.KeyLabel]; ok {
			return value
		}
	case v1alpha1.KeyName:
	}
	return o.Key()
}

// Main returns the identity of a main object.
func Main(kind schema.GroupKind, namespace, name string) slots.Object {
	return slots.Object{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: name}
}

// Controller returns the identity of the main object that controls a child in a namespace. The
// argument kind is the kind of the main resource.
func Controller(kind schema.GroupKind, isClusterScoped bool, namespace string, ref *metav1.OwnerReference) slots.Object {
	if isClusterScoped {
		namespace = ""
	}
	return Main(kind, namespace, ref.Name)
}

// Controls reports whether a controller reference of a child refers to an object of a main resource
// of the given kind, and that resource controls the child's resource.
func Controls(main v1alpha1.Resource, kind schema.GroupKind, child v1alpha1.GroupResource, ref *metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || version.Group != kind.Group || ref.Kind != kind.Kind {
		return false
	}
	return slices.Contains(main.ControlledResources, child)
}
