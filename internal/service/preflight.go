package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// connectTimeout is how long a service waits at the start for the API server to answer at all.
const connectTimeout = 10 * time.Second

// Permission is one thing that a service must be allowed to do.
type Permission struct {
	Verb, Group, Resource string
	// Namespace is "" for the whole cluster.
	Namespace string
}

// String describes the permission as in "may not ...".
func (p Permission) String() string {
	text := p.Verb + " " + p.Resource
	if p.Group != "" {
		text += "." + p.Group
	}
	if p.Namespace != "" {
		text += " in namespace " + p.Namespace
	}
	return text
}

// Permissions are the verbs on one resource in one namespace.
func Permissions(group, resource, namespace string, verbs ...string) []Permission {
	permissions := make([]Permission, 0, len(verbs))
	for _, verb := range verbs {
		permissions = append(permissions, Permission{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
	}
	return permissions
}

// checkReachable returns an error if the API server does not answer, or not to these credentials.
func checkReachable(cfg *rest.Config) error {
	short := rest.CopyConfig(cfg)
	short.Timeout = connectTimeout
	d, err := discovery.NewDiscoveryClientForConfig(short)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	_, err = d.ServerVersion()
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s refuses these credentials: check the kubeconfig or the service account", cfg.Host)
	case apierrors.IsForbidden(err):
		return nil // it answers: what is forbidden is for checkPermissions to say
	case err != nil:
		return fmt.Errorf("cannot reach the API server at %s: check that it runs and that --kubeconfig or KUBECONFIG names it: %w", cfg.Host, err)
	}
	return nil
}

// ensureNamespaces makes the namespaces that are missing.
func ensureNamespaces(ctx context.Context, c client.Client, names ...string) error {
	for _, name := range names {
		err := c.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			err = client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("namespace %s is missing or cannot be seen: run kubectl create namespace %s, or let this identity get and create namespaces: %w", name, name, err)
		}
		if err != nil {
			return fmt.Errorf("looking for namespace %s: %w", name, err)
		}
	}
	return nil
}

// checkPermissions returns an error that names every permission that is missing.
func checkPermissions(ctx context.Context, c client.Client, needed []Permission) error {
	var missing []string
	for _, permission := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: permission.Namespace, Verb: permission.Verb, Group: permission.Group, Resource: permission.Resource,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("asking whether this identity may %s: %w", permission, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, permission.String())
		}
	}
	if len(missing) > 0 {
		return errors.New("this identity may not " + strings.Join(missing, ", nor ") + ": grant it by a Role or ClusterRole and start again")
	}
	return nil
}
