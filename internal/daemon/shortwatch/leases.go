package shortwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Leases returns a client of Leases whose watches are held, see [Hold].
func Leases(c coordinationv1client.LeasesGetter) coordinationv1client.LeasesGetter {
	return leasesGetter{c}
}

type leasesGetter struct {
	coordinationv1client.LeasesGetter
}

// Leases returns the client of a namespace.
func (g leasesGetter) Leases(namespace string) coordinationv1client.LeaseInterface {
	return leases{g.LeasesGetter.Leases(namespace)}
}

type leases struct {
	coordinationv1client.LeaseInterface
}

// Watch opens a watch and holds it.
func (l leases) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	opened, err := l.LeaseInterface.Watch(ctx, options)
	if err != nil {
		return nil, err //nolint:wrapcheck // for the reflector, which checks its kind
	}
	return Hold(opened, nil), nil
}
