package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hands bounds the user's concurrent requests. It equals the bound of a watcher.
const hands = 16

// member is one node of the fleet. Only one goroutine uses it at a time.
type member struct {
	name string
	// labels are the expected labels of the node: those of its kubelet, and the user's.
	labels map[string]string
	// The incarnation, and its state after the last write of this process.
	uid             types.UID
	resourceVersion string
}

func newMember(i int) *member {
	name := fmt.Sprintf("node-%05d", i)
	m := &member{name: name, labels: kubelets(name)}
	maps.Copy(m.labels, map[string]string{
		"example.com/rack": "r" + strconv.Itoa(i/40), "example.com/row": strconv.Itoa(i / 400), "example.com/team": "blue",
		"example.com/tenant": "t" + strconv.Itoa(i%7), "example.com/pool": "batch", "disk": "ssd",
		"node-role.kubernetes.io/gpu": "", "licence": "l" + strconv.Itoa(i),
	})
	return m
}

// kubelets returns the labels that a kubelet sets on its own node.
func kubelets(name string) map[string]string {
	return map[string]string{
		"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"node.kubernetes.io/instance-type": "m5.large",
	}
}

// recruit creates nodes with new names.
func (c *cluster) recruit(ctx context.Context, count int) error {
	for i := range count {
		m := newMember(i)
		c.fleet[m.name] = m
	}
	return c.each(ctx, c.members(), func(ctx context.Context, m *member) error {
		if err := c.register(ctx, m); err != nil {
			return err
		}
		return c.label(ctx, m)
	})
}

// members returns the fleet in unspecified order.
func (c *cluster) members() []*member { return slices.Collect(maps.Values(c.fleet)) }

// uids returns the UIDs of the current incarnations.
func uids(members []*member) []types.UID {
	all := make([]types.UID, 0, len(members))
	for _, m := range members {
		all = append(all, m.uid)
	}
	return all
}

// each calls do for each node, with at most hands concurrent calls.
func (c *cluster) each(ctx context.Context, members []*member, do func(context.Context, *member) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(hands)
	for _, m := range members {
		all.Go(func() error { return do(ctx, m) })
	}
	return all.Wait()
}

// delete ends the incarnation of a node.
func (c *cluster) delete(ctx context.Context, m *member) error {
	if err := c.api.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}); err != nil {
		return fmt.Errorf("deleting node %s: %w", m.name, err)
	}
	return nil
}

// register creates a node as its kubelet does: without the user's labels.
func (c *cluster) register(ctx context.Context, m *member) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: kubelets(m.name)}, Status: c.setup.status()}
	as, err := c.creator(m.name)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := as.Create(ctx, n, client.FieldOwner("kubelet")); err != nil {
		return fmt.Errorf("creating node %s: %w", m.name, err)
	}
	c.created.add(time.Since(begun))
	m.uid, m.resourceVersion = n.UID, n.ResourceVersion
	return nil
}

// creator returns the client that creates a node: the kubelet's, if kubelets create nodes.
func (c *cluster) creator(node string) (client.Client, error) {
	if !c.setup.kubelets {
		return c.api, nil
	}
	cfg := rest.CopyConfig(c.plane.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	as, err := client.New(cfg, client.Options{Mapper: c.api.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting as the kubelet of node %s: %w", node, err)
	}
	return as, nil
}

// durations collects the durations of requests. It is safe for concurrent use.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) add(one time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

// take returns the durations since the last call, sorted.
func (d *durations) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.all
	d.all = nil
	slices.Sort(taken)
	return taken
}

// label sets the user's labels on a node, and a taint and an annotation if these are preserved.
func (c *cluster) label(ctx context.Context, m *member) error {
	metadata := map[string]any{"labels": m.labels}
	change := map[string]any{"metadata": metadata}
	if c.setup.preserves {
		metadata["annotations"] = map[string]string{"example.com/owner": "team-a"}
		change["spec"] = map[string]any{"taints": []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}}
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding the labels of node %s: %w", m.name, err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	if err := c.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, body), client.FieldOwner("kubectl-label")); err != nil {
		return fmt.Errorf("labelling node %s: %w", m.name, err)
	}
	m.resourceVersion = n.ResourceVersion
	return nil
}
