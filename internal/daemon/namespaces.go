package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// namespaces creates the namespaces of a program again if they are deleted while it runs. If it
// may not, the program is not ready. It is safe for concurrent use.
type namespaces struct {
	client client.Client
	names  []string

	mu  sync.Mutex // held while namespaces are created
	now clusterState
}

// namespacesClient is a client that reports when it finds a namespace missing.
type namespacesClient struct {
	client.Client

	namespaces *namespaces
}

// Create creates an object. If its namespace is missing, it creates that, and returns the error
// nonetheless: the caller decides again, as after any failed write.
func (c namespacesClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if isNamespaceMissing(err) && slices.Contains(c.namespaces.names, obj.GetNamespace()) {
		c.namespaces.create(ctx)
	}
	return err //nolint:wrapcheck // a client like any other
}

// isNamespaceMissing reports whether a create was rejected by the admission plugin
// NamespaceLifecycle because there is no such namespace.
func isNamespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// create creates missing namespaces, unless another call is at it.
func (n *namespaces) create(ctx context.Context) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	lacking, err := ensureNamespaces(ctx, n.client, n.names...)
	if len(lacking) > 0 {
		err = fmt.Errorf("a namespace is missing, and this identity may not %s: run kubectl get namespaces %v", lacking[0], n.names)
	}
	if err == nil {
		logf.FromContext(ctx).Info("The namespaces exist again", "namespaces", n.names)
	}
	n.now.set(err)
}

// check is a readiness check. While a namespace is missing, it looks for it again: possibly nothing
// is left to write there.
func (n *namespaces) check(r *http.Request) error {
	if n.now.check(r) != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		n.create(ctx)
	}
	return n.now.check(r)
}

// ensureNamespaces creates missing namespaces. It returns the permissions that it lacks to check
// whether they exist.
func ensureNamespaces(ctx context.Context, c client.Client, names ...string) (lacking []Permission, err error) {
	for _, name := range names {
		err := c.Get(ctx, types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsForbidden(err) {
			return Permissions("", "namespaces", "", "get"), nil
		}
		if apierrors.IsNotFound(err) {
			err = client.IgnoreAlreadyExists(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("namespace %s is missing: run kubectl create namespace %s, or let this identity create namespaces: %w", name, name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for namespace %s: %w", name, err)
		}
	}
	return nil, nil
}
