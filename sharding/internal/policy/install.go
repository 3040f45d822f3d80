package policy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// errForeign means that an object with the name of a policy or a webhook configuration exists and does not belong to the ring.
var errForeign = errors.New("it exists and does not belong to this ring: delete or rename it")

// install creates or updates the policies or webhooks of a ring. It returns their revision, and
// whether it wrote anything.
func (c *Controller) install(ctx context.Context, r *v1alpha1.ClusterRing, resources []Resource) (revision string, written bool, err error) {
	user, err := c.self(ctx)
	if err != nil {
		return "", false, err
	}
	b := &Builder{Prefix: c.Dialect.PrefixOf(r), Namespace: c.Namespace, Sharders: []string{user}}
	if c.Mode == ByWebhook {
		return c.installWebhooks(ctx, r, b, resources)
	}
	p := b.Build(r, resources)
	isFirst := c.installedRevision(r.Name) == ""
	written, err = c.installPolicies(ctx, r.Name, p)
	if err == nil && isFirst {
		err = c.removeWebhooks(ctx, r.Name)
	}
	return p.Revision, written, err
}

// installWebhooks creates or updates the webhooks of a ring, and removes its policies.
func (c *Controller) installWebhooks(ctx context.Context, r *v1alpha1.ClusterRing, b *Builder, resources []Resource) (revision string, written bool, err error) {
	want, revision := b.BuildWebhooks(r, resources, c.Webhooks.Endpoint)
	isFirst := c.installedRevision(r.Name) == ""
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	for i := range want.Webhooks {
		want.Webhooks[i].ClientConfig.CABundle = c.Webhooks.bundleFor(is.Webhooks)
	}
	same := err == nil && equality.Semantic.DeepEqual(is.Webhooks, want.Webhooks)
	if written, err = c.ensure(ctx, r.Name, want, is, same, err); err != nil {
		return revision, written, fmt.Errorf("installing MutatingWebhookConfiguration %s: %w", want.Name, err)
	}
	if isFirst {
		err = c.removePolicies(ctx, r.Name)
		if err == nil {
			err = c.removeTable(ctx, r.Name)
		}
	}
	return revision, written, err
}

// installPolicies creates or updates the policies of a ring. It reports whether it wrote anything.
func (c *Controller) installPolicies(ctx context.Context, ring string, p Policies) (written bool, err error) {
	if c.installedRevision(ring) != p.Revision {
		if err := c.ensureAnchors(ctx); err != nil {
			return false, err
		}
	}
	for _, pair := range []Pair{p.Stick, p.Assign} {
		wrotePolicy, err := c.ensurePolicy(ctx, ring, pair.Policy)
		if err != nil {
			return true, fmt.Errorf("installing MutatingAdmissionPolicy %s: %w", pair.Policy.Name, err)
		}
		wroteBinding, err := c.ensureBinding(ctx, ring, pair.Binding)
		if err != nil {
			return true, fmt.Errorf("installing MutatingAdmissionPolicyBinding %s: %w", pair.Binding.Name, err)
		}
		written = written || wrotePolicy || wroteBinding
	}
	return written, nil
}

func (c *Controller) ensurePolicy(ctx context.Context, ring string, want *admissionregistrationv1.MutatingAdmissionPolicy) (written bool, err error) {
	is := &admissionregistrationv1.MutatingAdmissionPolicy{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	same := err == nil && equality.Semantic.DeepEqual(is.Spec, want.Spec)
	return c.ensure(ctx, ring, want, is, same, err)
}

func (c *Controller) ensureBinding(ctx context.Context, ring string, want *admissionregistrationv1.MutatingAdmissionPolicyBinding) (written bool, err error) {
	is := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), is)
	same := err == nil && equality.Semantic.DeepEqual(is.Spec, want.Spec)
	return c.ensure(ctx, ring, want, is, same, err)
}

// ensure creates an object that does not exist, and updates one that differs, conditional on its
// resourceVersion. The arguments is and err are the results of reading the object; same is set if
// its spec needs no change.
func (c *Controller) ensure(ctx context.Context, ring string, want, is client.Object, same bool, err error) (written bool, _ error) {
	if apierrors.IsNotFound(err) {
		return true, c.Client.Create(ctx, want) //nolint:wrapcheck // install adds the context
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
	return true, c.Client.Update(ctx, want) //nolint:wrapcheck // install adds the context
}

// belongsTo reports whether an object is owned by the ring, or by an earlier ring of the same name.
func belongsTo(o client.Object, ring string) bool {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != ringKind || owner.Name != ring {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == v1alpha1.GroupName
}

// Remove deletes the policies of a ring, its table, its webhooks and its fences, based on live
// reads.
func (c *Controller) Remove(ctx context.Context, ring string) error {
	for _, remove := range []func(context.Context, string) error{c.removeFence, c.removeWebhooks, c.removePolicies, c.removeTable} {
		if err := remove(ctx, ring); err != nil {
			return err
		}
	}
	return nil
}

// removePolicies deletes the policies of a ring. It deletes each binding before its policy, so that
// after a crash no policy is left that takes effect.
func (c *Controller) removePolicies(ctx context.Context, ring string) error {
	if c.Mode == ByPolicy {
		if err := c.ensureAnchors(ctx); err != nil {
			return err
		}
	}
	for _, name := range names(ring) {
		for _, o := range []client.Object{&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicy{}} {
			if err := c.delete(ctx, ring, types.NamespacedName{Name: name}, o); err != nil {
				return fmt.Errorf("deleting %T %s: %w", o, name, err)
			}
		}
	}
	return nil
}

func (c *Controller) removeTable(ctx context.Context, ring string) error {
	name := types.NamespacedName{Namespace: c.Namespace, Name: tablePrefix + ring}
	if err := c.delete(ctx, ring, name, &corev1.ConfigMap{}); err != nil {
		return fmt.Errorf("deleting ConfigMap %s: %w", name, err)
	}
	return nil
}

func (c *Controller) removeWebhooks(ctx context.Context, ring string) error {
	name := types.NamespacedName{Name: webhookPrefix + ring}
	if err := c.delete(ctx, ring, name, &admissionregistrationv1.MutatingWebhookConfiguration{}); err != nil {
		return fmt.Errorf("deleting MutatingWebhookConfiguration %s: %w", name.Name, err)
	}
	return nil
}

// delete deletes an object if it belongs to the ring. It succeeds if the object does not exist or
// the API server does not serve its kind.
func (c *Controller) delete(ctx context.Context, ring string, name types.NamespacedName, o client.Object) error {
	err := c.Resources.Reader.Get(ctx, name, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // Remove adds the context
	}
	if !belongsTo(o, ring) {
		return nil
	}
	uid, version := o.GetUID(), o.GetResourceVersion()
	err = c.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
	return client.IgnoreNotFound(err) //nolint:wrapcheck // Remove adds the context
}
