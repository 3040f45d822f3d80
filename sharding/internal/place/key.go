package place

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// Key returns the key by which an object with these labels has its slot. The object o is that object itself,
// or the main object that controls it.
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

// Main names a main object.
func Main(kind schema.GroupKind, namespace, name string) slots.Object {
	return slots.Object{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: name}
}

// Controller names the main object that controls a child in a namespace. The kind is that of the main
// resource.
func Controller(kind schema.GroupKind, isClusterScoped bool, namespace string, ref *metav1.OwnerReference) slots.Object {
	if isClusterScoped {
		namespace = ""
	}
	return Main(kind, namespace, ref.Name)
}

// Controls reports whether a controller reference can name an object of a main resource of this kind, which
// must control the resource of the child.
func Controls(main v1alpha1.Resource, kind schema.GroupKind, child v1alpha1.GroupResource, ref *metav1.OwnerReference) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || version.Group != kind.Group || ref.Kind != kind.Kind {
		return false
	}
	return slices.Contains(main.ControlledResources, child)
}
