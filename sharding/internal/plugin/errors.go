package plugin

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// explainRings adds advice to an error of reading rings.
func explainRings(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return errors.New("the API server does not serve ClusterRings: install the sharder first (kubectl apply -k sharding/deploy/crd)")
	}
	return err
}

// explainRing adds advice to an error of reading the ring with this name.
func explainRing(err error, name string) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) || !isAboutRings(status) {
		return err
	}
	if d := status.Status().Details; d != nil && d.Name == name {
		return fmt.Errorf("there is no ring %q: see kubectl rings list", name)
	}
	return explainRings(err)
}

// isAboutRings reports whether an error is about ClusterRings, or about a path that does not exist.
func isAboutRings(e *apierrors.StatusError) bool {
	d := e.Status().Details
	return d == nil || d.Group == "sharding.nodekeeper.dev" || d.Group == ""
}

// explainObject adds advice to an error of reading an object or the ring with this name, if not empty.
func explainObject(err error, mapping *meta.RESTMapping, namespace, name, ring string) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsNotFound(err) {
		return err
	}
	d := status.Status().Details
	if d == nil || d.Name != name || d.Group != mapping.Resource.Group {
		if ring == "" {
			return explainRings(err)
		}
		return explainRing(err, ring)
	}
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	return fmt.Errorf("there is no %s %q%s", mapping.Resource.GroupResource(), name, where)
}
