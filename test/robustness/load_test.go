package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/sabotage"
)

const (
	nodeCount = 30
	userCount = 4
	// userPeriod is the mean time between two actions of a user.
	userPeriod = 120 * time.Millisecond
)

// user acts on nodes like people, kubelets and autoscalers. It ignores errors, as the history shows
// what happened.
type user struct {
	world  *world
	random *rand.Rand
	values *atomic.Int64 // counts new values
}

// requestedAnnotation holds the labels with which a Node was created: the history only has the
// result of the webhook.
const requestedAnnotation = "requested"

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// run performs actions until ctx is cancelled.
func (u *user) run(ctx context.Context) {
	for sabotage.Wait(ctx, time.Duration(u.random.ExpFloat64()*float64(userPeriod))) {
		_ = u.act(ctx, nodeName(u.random.IntN(nodeCount)))
	}
}

func (u *user) act(ctx context.Context, name string) error {
	var n corev1.Node
	err := u.world.client.Get(ctx, types.NamespacedName{Name: name}, &n)
	if apierrors.IsNotFound(err) {
		return u.create(ctx, name, "")
	}
	if err != nil {
		return err
	}
	switch u.random.IntN(10) {
	case 0, 1:
		return u.delete(ctx, &n)
	case 2:
		return u.replace(ctx, &n)
	case 3:
		return u.heartbeat(ctx, name)
	case 4:
		return u.removeMarker(ctx, &n)
	case 5: // the final labels may be very recent ones
		return errors.Join(u.edit(ctx, name), u.delete(ctx, &n))
	}
	return u.edit(ctx, name)
}

// create creates the node with its own labels, some of them live ones.
func (u *user) create(ctx context.Context, name, marker string) error {
	own := labelSet{"kubernetes.io/hostname": name}
	for _, key := range []string{"a", "example.com/team", "topology.kubernetes.io/zone"} {
		if u.random.IntN(2) == 0 {
			own[key] = u.value()
		}
	}
	if u.random.IntN(10) == 0 {
		marker = "9" + strconv.Itoa(1e9) // from a template that was made from another node
	}
	if marker != "" {
		own[labels.Marker] = marker
	}
	requested, err := json.Marshal(own)
	if err != nil {
		return err
	}
	return u.world.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: own, Annotations: map[string]string{requestedAnnotation: string(requested)},
	}})
}

// edit sets or removes labels in one write.
func (u *user) edit(ctx context.Context, name string) error {
	changes := map[string]any{}
	for range 1 + u.random.IntN(2) {
		key := []string{"a", "b", "example.com/team", "topology.kubernetes.io/zone"}[u.random.IntN(4)]
		changes[key] = nil
		if u.random.IntN(3) > 0 {
			changes[key] = u.value()
		}
	}
	return u.patch(ctx, name, map[string]any{"labels": changes})
}

func (u *user) heartbeat(ctx context.Context, name string) error {
	return u.patch(ctx, name, map[string]any{"annotations": map[string]any{"heartbeat": strconv.FormatInt(u.values.Add(1), 10)}})
}

// removeMarker removes the marker once the restore is noted. Before that, it would request another
// restore.
func (u *user) removeMarker(ctx context.Context, n *corev1.Node) error {
	if isNoted, err := u.isNoted(ctx, n); err != nil || !isNoted {
		return err
	}
	return u.patch(ctx, n.Name, map[string]any{"uid": n.UID, "labels": map[string]any{labels.Marker: nil}})
}

// isNoted reports whether the record notes that an incarnation owns its labels.
func (u *user) isNoted(ctx context.Context, n *corev1.Node) (bool, error) {
	var cm corev1.ConfigMap
	if err := u.world.client.Get(ctx, types.NamespacedName{Namespace: metadata, Name: n.Name}, &cm); err != nil {
		return false, err
	}
	r, err := record.Parse(&cm)
	return err == nil && preserve.Owned(*r, n.UID, ""), err
}

func (u *user) patch(ctx context.Context, name string, meta map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	return u.world.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, body))
}

// delete deletes the node, if the scenario permits that now.
func (u *user) delete(ctx context.Context, n *corev1.Node) error {
	if u.world.scenario.isProtected && len(n.Finalizers) == 0 {
		return errors.New("not protected yet")
	}
	return u.world.client.Delete(ctx, n, client.Preconditions{UID: &n.UID})
}

// replace deletes and creates the node several times in a row.
func (u *user) replace(ctx context.Context, n *corev1.Node) error {
	for range 1 + u.random.IntN(3) {
		if err := u.delete(ctx, n); err != nil {
			return err
		}
		marker := ""
		if !u.world.scenario.isBlind && u.random.IntN(3) == 0 {
			// This is like kubectl get -o yaml and create. If the end of a node is not seen, a copied marker
			// that is not noted yet would mean that the labels have been restored: a limit of the design.
			if isNoted, err := u.isNoted(ctx, n); err == nil && isNoted {
				marker = n.Labels[labels.Marker]
			}
		}
		if err := u.create(ctx, n.Name, marker); err != nil {
			return err
		}
		if err := u.world.client.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
	}
	return nil
}

// value returns one of a few values, so that values recur, or a new one, so that no result is right
// by chance.
func (u *user) value() string {
	if u.random.IntN(3) == 0 {
		return "w" + strconv.Itoa(u.random.IntN(2))
	}
	return "v" + strconv.FormatInt(u.values.Add(1), 10)
}

// cycle deletes every existing node, and creates all.
func (u *user) cycle(ctx context.Context) error {
	for i := range nodeCount {
		name := nodeName(i)
		deleted := types.UID("")
		err := eventually(ctx, func(ctx context.Context) error {
			var n corev1.Node
			err := u.world.client.Get(ctx, types.NamespacedName{Name: name}, &n)
			switch {
			case apierrors.IsNotFound(err):
				return u.create(ctx, name, "")
			case err != nil:
				return err
			case deleted == "":
				if err = u.delete(ctx, &n); err == nil {
					deleted = n.UID
				}
				return errors.Join(err, errors.New("not created yet"))
			case deleted == n.UID:
				return errors.New("not gone yet")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("replacing node %s: %w", name, err)
		}
	}
	return nil
}

// settled returns nil if every queue is empty, and every node has its labels and so has its record.
func (w *world) settled(ctx context.Context) error {
	var queue, records corev1.ConfigMapList
	var nodes corev1.NodeList
	err := errors.Join(
		w.client.List(ctx, &queue, client.InNamespace(transactions)),
		w.client.List(ctx, &nodes),
		w.client.List(ctx, &records, client.InNamespace(metadata)),
	)
	if err != nil {
		return err
	}
	if len(queue.Items) > 0 {
		return fmt.Errorf("%d transactions are left, the first is %s", len(queue.Items), queue.Items[0].Name)
	}
	saved := map[string]*record.Record{}
	for i := range records.Items {
		if saved[records.Items[i].Name], err = record.Parse(&records.Items[i]); err != nil {
			return err
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		own, marker := labels.Split(n.Labels)
		if slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint) {
			return fmt.Errorf("node %s is left behind the startup taint", n.Name)
		}
		if r := saved[n.Name]; r == nil || !preserve.Owned(*r, n.UID, marker) || !maps.Equal(own, r.Labels) {
			return fmt.Errorf("node %s has %v and marker %q, its record is %+v", n.Name, own, marker, r)
		}
	}
	return nil
}
