package faults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Fake returns a builder of fake clients that know the kinds that nodekeeper works with. The fake
// client iterates over every kind of its scheme on each write, which takes milliseconds with the
// default scheme.
func Fake() *fake.ClientBuilder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	// The plugin reads these as metadata. The fake client adds kinds that it does not know to the
	// scheme, while [Client] reads it.
	scheme.AddKnownTypes(admissionregistrationv1.SchemeGroupVersion,
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{})
	return fake.NewClientBuilder().WithScheme(scheme)
}
