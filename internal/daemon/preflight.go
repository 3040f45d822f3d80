package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// connectTimeout is how long a service waits at the start for a response of the API server.
	connectTimeout = 10 * time.Second

	// waitPeriod is the time between two checks of a cluster that has not passed.
	waitPeriod = 5 * time.Second
)

// oldest is the oldest supported Kubernetes, where immutable ConfigMaps are stable. A server before
// 1.19 would silently drop the field immutable of a transaction, and has no events.k8s.io/v1.
var oldest = utilversion.MustParseGeneric("1.21")

// errStopped means that the service was shut down before it started.
var errStopped = errors.New("shut down while waiting for the cluster")

// checkCluster returns nil once the cluster passes all checks. If a check fails, it returns the
// reason, or, with [Options.WaitForCluster], logs it once, reports it in the readiness probe, and
// retries until the checks pass or ctx is done.
func checkCluster(ctx context.Context, rc *rest.Config, cfg Config, p *probes) error {
	var state clusterState
	state.set(errors.New("the cluster has not been checked yet"))
	p.add(&p.ready, "cluster", state.check)
	log, lastReason := logf.FromContext(ctx), ""
	for {
		err := verifyCluster(ctx, rc, cfg)
		state.set(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errStopped
		case !cfg.Options.WaitForCluster:
			return err
		case err.Error() != lastReason:
			lastReason = err.Error()
			log.Error(err, "Preflight checks failed, retrying", "period", waitPeriod.String())
		}
		timer := time.NewTimer(waitPeriod)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errStopped
		case <-timer.C:
		}
	}
}

// clusterState is the reason why the cluster has not passed. It is safe for concurrent use.
type clusterState struct {
	mu  sync.Mutex
	err error
}

func (s *clusterState) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// check is a readiness check.
func (s *clusterState) check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// verifyCluster returns an error unless the cluster passes all checks.
func verifyCluster(ctx context.Context, rc *rest.Config, cfg Config) error {
	short := rest.CopyConfig(rc)
	short.Timeout = connectTimeout
	if err := checkServer(ctx, short); err != nil {
		return err
	}
	c, err := client.New(short, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", rc.Host, err)
	}
	missing, err := ensureNamespaces(ctx, c, cfg.Namespaces...)
	if err != nil {
		return err
	}
	if err := checkPermissions(ctx, c, missing, cfg.Permissions); err != nil || cfg.Check == nil {
		return err
	}
	return cfg.Check(ctx, c)
}

// Permission is an action that a service must be allowed to perform.
type Permission struct {
	Verb, Group string
	// Resource is a resource, or resource/subresource.
	Resource string
	// Name is the name of the only object that it concerns, or "" for all.
	Name string
	// Namespace is "" for the whole cluster.
	Namespace string
	// GrantedBy is the directory of the kustomize component that grants it, or "" for the base.
	GrantedBy string
}

// String describes the permission, as in "may not ...".
func (p Permission) String() string {
	text := p.Verb + " " + p.Resource
	if p.Group != "" {
		text += "." + p.Group
	}
	if p.Name != "" {
		text += "/" + p.Name
	}
	if p.Namespace != "" {
		text += " in namespace " + p.Namespace
	}
	if p.GrantedBy != "" {
		text += " (" + p.GrantedBy + " grants it)"
	}
	return text
}

// Permissions returns the permissions for some verbs on one resource in one namespace.
func Permissions(group, resource, namespace string, verbs ...string) []Permission {
	permissions := make([]Permission, 0, len(verbs))
	for _, verb := range verbs {
		permissions = append(permissions, Permission{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
	}
	return permissions
}

// Named returns the permissions restricted to the object with that name.
func Named(name string, permissions []Permission) []Permission {
	named := slices.Clone(permissions)
	for i := range named {
		named[i].Name = name
	}
	return named
}

// GrantedBy returns the permissions with the component that grants them.
func GrantedBy(component string, permissions []Permission) []Permission {
	granted := slices.Clone(permissions)
	for i := range granted {
		granted[i].GrantedBy = component
	}
	return granted
}

// checkServer returns an error if the API server does not respond, rejects the credentials, or is
// too old.
func checkServer(ctx context.Context, cfg *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	response, err := d.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s refuses these credentials: check the kubeconfig or the service account", cfg.Host)
	case apierrors.IsForbidden(err):
		return nil // it responds: checkPermissions reports missing permissions
	case err != nil:
		return fmt.Errorf("cannot reach the API server at %s: check that it runs and that --kubeconfig or KUBECONFIG names it: %w", cfg.Host, err)
	}
	var info apiversion.Info
	if err := json.Unmarshal(response, &info); err != nil {
		return fmt.Errorf("reading the version of the API server at %s: %w", cfg.Host, err)
	}
	server, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil //nolint:nilerr // a custom build
	}
	if server.LessThan(oldest) {
		return fmt.Errorf("the API server at %s is Kubernetes %s: nodekeeper needs %s or newer", cfg.Host, info.GitVersion, oldest)
	}
	return nil
}

// checkPermissions returns an error that names every missing permission: the known ones, and those
// that are needed but not granted.
func checkPermissions(ctx context.Context, c client.Client, known, needed []Permission) error {
	missing, err := Missing(ctx, c, needed)
	if err != nil {
		return err
	}
	var lacks []string
	for _, permission := range slices.Concat(known, missing) {
		lacks = append(lacks, permission.String())
	}
	if len(lacks) > 0 {
		return errors.New("this identity may not " + strings.Join(lacks, ", nor ") + ": grant it by a Role or ClusterRole")
	}
	return nil
}

// Missing returns the permissions that the identity of the client does not have, in the
// same order.
func Missing(ctx context.Context, c client.Client, needed []Permission) (missing []Permission, err error) {
	for _, permission := range needed {
		resource, subresource, _ := strings.Cut(permission.Resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: permission.Namespace, Verb: permission.Verb, Group: permission.Group, Resource: resource, Subresource: subresource, Name: permission.Name,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("checking whether this identity may %s: %w", permission, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, permission)
		}
	}
	return missing, nil
}
