package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// errForeign means that something of a policy's name exists that is not the ring's.
var errForeign = errors.New("it exists and does not belong to this ring: delete or rename it")

// install makes the API server have the policies of a ring. It reports whether it had to write.
func (c *Controller) install(ctx context.Context, ring string, p Policies) (hasWritten bool, err error) {
	for _, pair := range []Pair{p.Stick, p.Assign} {
		wrotePolicy, err := c.ensurePolicy(ctx, ring, pair.Policy)
		if err != nil {
			return true, fmt.Errorf("installing MutatingAdmissionPolicy %s: %w", pair.Policy.Name, err)
		}
		wroteBinding, err := c.ensureBinding(ctx, ring, pair.Binding)
		if err != nil {
			return true, fmt.Errorf("installing MutatingAdmissionPolicyBinding %s: %w", pair.Binding.Name, err)
		}
		hasWritten = hasWritten || wrotePolicy || wroteBinding
	}
	return hasWritten, nil
}

func (c *Controller) ensurePolicy(ctx context.Context, ring string, want *admissionregistrationv1.MutatingAdmissionPolicy) (hasWritten bool, err error) {
	is := &admissionregistrationv1.MutatingAdmissionPolicy{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	same := err == nil && equality.Semantic.DeepEqual(is.Spec, want.Spec)
	return c.ensure(ctx, ring, want, is, same, err)
}

func (c *Controller) ensureBinding(ctx context.Context, ring string, want *admissionregistrationv1.MutatingAdmissionPolicyBinding) (hasWritten bool, err error) {
	is := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	same := err == nil && equality.Semantic.DeepEqual(is.Spec, want.Spec)
	return c.ensure(ctx, ring, want, is, same, err)
}

// ensure creates what does not exist, and updates what differs if nobody else has changed it meanwhile.
// Reading it has returned the second object and err.
func (c *Controller) ensure(ctx context.Context, ring string, want, is client.Object, same bool, err error) (hasWritten bool, _ error) {
	if apierrors.IsNotFound(err) {
		return true, c.Client.Create(ctx, want) //nolint:wrapcheck // install says what
	}
	if err != nil {
		return false, err
	}
	if !belongsTo(is, ring) {
		return false, errForeign
	}
	if same && equality.Semantic.DeepEqual(is.GetOwnerReferences(), want.GetOwnerReferences()) {
		return false, nil
	}
	want.SetResourceVersion(is.GetResourceVersion())
	return true, c.Client.Update(ctx, want) //nolint:wrapcheck // install says what
}

// belongsTo reports whether an object is that of a ring of a name, or of an earlier one of that name.
func belongsTo(o client.Object, ring string) bool {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != ringKind || owner.Name != ring {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == v1alpha1.GroupName
}

// Remove deletes the policies of a ring, by live reads. A crash before the end leaves nothing that acts: a
// policy does nothing without its binding, which goes first.
func (c *Controller) Remove(ctx context.Context, ring string) error {
	for _, name := range names(ring) {
		for _, o := range []client.Object{&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicy{}} {
			if err := c.delete(ctx, ring, name, o); err != nil {
				return fmt.Errorf("deleting %T %s: %w", o, name, err)
			}
		}
	}
	return nil
}

// delete deletes an object if it belongs to a ring. One that does not exist, or whose kind the API server
// does not serve, is as it should be.
func (c *Controller) delete(ctx context.Context, ring, name string, o client.Object) error {
	err := c.Resources.Reader.Get(ctx, types.NamespacedName{Name: name}, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // Remove says what
	}
	if !belongsTo(o, ring) {
		return nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err = c.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	return client.IgnoreNotFound(err) //nolint:wrapcheck // Remove says what
}
