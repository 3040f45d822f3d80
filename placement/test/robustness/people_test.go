package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/sabotage"
)

const (
	// maxPartitions bounds what people wish, and finalPartitions is what they wish in the end.
	maxPartitions, finalPartitions = 8, 6
	// wishPeriod is the mean time between two wishes.
	wishPeriod = 700 * time.Millisecond
)

// names are those of the Queues.
var names = []string{"orders", "mails", "clicks"}

// people change what they want. They ignore errors: another wish comes.
type people struct {
	world  *world
	random *rand.Rand
}

func (p *people) run(ctx context.Context) {
	for sabotage.Wait(ctx, time.Duration(p.random.ExpFloat64()*float64(wishPeriod))) {
		one, cancel := context.WithTimeout(ctx, requestTimeout)
		_ = p.wish(one, names[p.random.IntN(len(names))])
		cancel()
	}
}

func (p *people) wish(ctx context.Context, name string) error {
	switch p.random.IntN(10) {
	case 0: // the next wish for it creates it again
		return p.world.client.Delete(ctx, queues.New(namespace, name, 0))
	case 1:
		return p.world.patch(ctx, name, fmt.Sprintf(`{"spec":{"topic":"t%d"}}`, p.random.IntN(100)))
	case 2, 3:
		pod := p.world.pods[p.random.IntN(podCount)].String()
		return p.world.schedulable(ctx, pod, p.random.IntN(2) == 0)
	}
	return p.world.scale(ctx, name, p.random.Int64N(maxPartitions+1))
}

// scale makes a Queue have a number of partitions.
func (w *world) scale(ctx context.Context, name string, partitions int64) error {
	err := w.patch(ctx, name, fmt.Sprintf(`{"spec":{"partitions":%d}}`, partitions))
	if client.IgnoreNotFound(err) == nil && err != nil {
		return w.client.Create(ctx, queues.New(namespace, name, partitions))
	}
	return err
}

func (w *world) patch(ctx context.Context, name, patch string) error {
	return w.client.Patch(ctx, queues.New(namespace, name, 0), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// schedulable allows new work on a pod, or makes its work move elsewhere.
func (w *world) schedulable(ctx context.Context, pod string, isSchedulable bool) error {
	value := `"true"`
	if isSchedulable {
		value = "null"
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, contract.UnschedulableAnnotation, value)
	return w.client.Patch(ctx, &coordinationv1.Lease{ObjectMeta: meta(pod)}, client.RawPatch(types.MergePatchType, patch))
}

// settle makes the last wishes.
func (w *world) settle(ctx context.Context) error {
	for _, name := range names {
		if err := eventually(ctx, func(ctx context.Context) error { return w.scale(ctx, name, finalPartitions) }); err != nil {
			return err
		}
	}
	return eventually(ctx, func(ctx context.Context) error {
		var leases coordinationv1.LeaseList
		if err := w.client.List(ctx, &leases, client.InNamespace(namespace), client.HasLabels{contract.PoolLabel}); err != nil {
			return err
		}
		var errs []error
		for i := range leases.Items {
			errs = append(errs, client.IgnoreNotFound(w.schedulable(ctx, leases.Items[i].Name, true)))
		}
		return errors.Join(errs...)
	})
}

// calm returns nil if all is worked on, by pods that are there, and the Queues are Ready.
func (w *world) calm(ctx context.Context) error {
	pods := map[string]bool{}
	for _, p := range w.pods {
		pods[p.String()] = true
	}
	for _, name := range names {
		q := queues.New(namespace, name, 0)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return err
		}
		owners := w.observer.owners(string(q.GetUID()))
		for index, pod := range owners {
			if index >= finalPartitions || !pods[pod] {
				return fmt.Errorf("%s works on %s %d", pod, name, index)
			}
		}
		c := condition(q, ready.Ready)
		generation, _, _ := unstructured.NestedInt64(c, "observedGeneration")
		working, _, _ := unstructured.NestedInt64(q.Object, "status", "readyVReplicas")
		if len(owners) != finalPartitions || working != finalPartitions || c["status"] != "True" || generation != q.GetGeneration() {
			return fmt.Errorf("%s: %d of %d programs work, and the status is %v", name, len(owners), finalPartitions, q.Object["status"])
		}
	}
	return nil
}

// versions returns the versions of everything that the controller writes when something changes.
func (w *world) versions(ctx context.Context) (string, error) {
	var contracts corev1.ConfigMapList
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queues.Kind)
	if err := errors.Join(w.client.List(ctx, &contracts, client.InNamespace(namespace)), w.client.List(ctx, list, client.InNamespace(namespace))); err != nil {
		return "", err
	}
	var all strings.Builder
	for i := range contracts.Items {
		fmt.Fprintln(&all, contracts.Items[i].Name, contracts.Items[i].ResourceVersion)
	}
	for i := range list.Items {
		fmt.Fprintln(&all, list.Items[i].GetName(), list.Items[i].GetResourceVersion())
	}
	return all.String(), nil
}
