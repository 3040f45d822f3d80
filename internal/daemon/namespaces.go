package daemon

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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

// watchNamespaces returns namespaces that are created with the connection, and adds itself to the
// connection.
func watchNamespaces(rc *rest.Config, names []string) (*namespaces, error) {
	c, err := client.New(rest.CopyConfig(rc), client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", rc.Host, err)
	}
	n := &namespaces{client: c, names: names}
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return namespacesTransport{next, n} })
	return n, nil
}

// namespacesTransport creates a namespace when a create finds it missing. The caller gets the
// answer nonetheless, and decides again, as after any failed write.
type namespacesTransport struct {
	next       http.RoundTripper
	namespaces *namespaces
}

// RoundTrip is safe for concurrent use.
func (t namespacesTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil && req.Method == http.MethodPost && resp.StatusCode == http.StatusNotFound &&
		slices.ContainsFunc(t.namespaces.names, func(name string) bool { return strings.Contains(req.URL.Path, "/namespaces/"+name+"/") }) {
		t.namespaces.create(req.Context())
	}
	return resp, err //nolint:wrapcheck // a transport like any other
}

// create creates missing namespaces, unless another call is already doing so.
func (n *namespaces) create(ctx context.Context) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	lacking, err := ensureNamespaces(ctx, n.client, n.names...)
	if len(lacking) > 0 {
		err = fmt.Errorf("a namespace is missing, and this identity may not %s: create it, or grant that (%v)", lacking[0], n.names)
	}
	if err == nil {
		logf.FromContext(ctx).Info("The namespaces exist again", "namespaces", n.names)
	}
	n.now.set(err)
}

// check is a readiness check. While a namespace is missing, it looks for it itself, because possibly
// no further write shows that it is back.
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
