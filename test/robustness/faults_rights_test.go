package robustness

import (
	"context"
	"errors"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/sabotage"
)

// revokeRights revokes all permissions of programs, and grants them again.
type revokeRights struct {
	world   *world
	victims []*process
}

func (w *world) drawRevokeRights(r *rand.Rand) sabotage.Fault {
	return &revokeRights{world: w, victims: sabotage.Some(r, w.victims())}
}

func (f *revokeRights) Inject(ctx context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, client.IgnoreNotFound(f.world.client.Delete(ctx, p.binding())))
	}
	return errors.Join(errs...)
}

// Heal is idempotent: another fault may have revoked the same permissions.
func (f *revokeRights) Heal(ctx context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, client.IgnoreAlreadyExists(f.world.client.Create(ctx, p.binding())))
	}
	return errors.Join(errs...)
}

func (f *revokeRights) String() string { return "no rights for " + sabotage.Names(f.victims) }

// fillQuota makes every create of a ConfigMap in a namespace fail, because its ResourceQuota is
// reached. The usage is written by hand, as no quota controller runs.
type fillQuota struct {
	world     *world
	namespace string
	name      string
}

func (w *world) drawFillQuota(r *rand.Rand) sabotage.Fault {
	f := &fillQuota{world: w, namespace: metadata, name: "full-" + string(rune('a'+r.IntN(26)))}
	if r.IntN(2) == 0 {
		f.namespace = transactions
	}
	if f.namespace == transactions && w.scenario.hasAnchor {
		return nil // it would also affect the anchor
	}
	return f
}

func (f *fillQuota) Inject(ctx context.Context) error {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("0")}
	if err := f.world.client.Create(ctx, q); err != nil {
		return err
	}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, q.Spec.Hard
	return f.world.client.Status().Update(ctx, q)
}

func (f *fillQuota) Heal(ctx context.Context) error {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name}}
	return client.IgnoreNotFound(f.world.client.Delete(ctx, q))
}

func (f *fillQuota) String() string { return "full quota of " + f.namespace }
