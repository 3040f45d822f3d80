package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// churners is how many nodes come and go at a time.
const churners = 20

// churn are nodes without machines that are labelled, deleted and recreated over and over. No pod
// is scheduled onto them.
type churn struct {
	cluster *realCluster
	stopped context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	errs    []error
	returns int
	slowest returned
}

// returned is how long it took until the labels of a node were back.
type returned struct {
	node    string
	created time.Time
	took    time.Duration
}

func (r returned) String() string {
	return fmt.Sprintf("%s (%s, created at %s)", r.took.Round(time.Millisecond), r.node, r.created.UTC().Format("15:04:05.000"))
}

func startChurn(t *testing.T, cluster *realCluster) *churn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &churn{cluster: cluster, stopped: cancel}
	prefix := "churn-" + rand.String(5) + "-"
	for i := range churners {
		n := &churned{client: cluster.client, name: prefix + strconv.Itoa(i), labels: map[string]string{"number": strconv.Itoa(i)}}
		require.NoError(t, n.create(ctx, n.labels))
		t.Cleanup(func() {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
			assert.NoError(t, client.IgnoreNotFound(cluster.client.Delete(context.WithoutCancel(ctx), node)))
		})
		c.done.Go(func() { c.run(ctx, n) })
	}
	return c
}

// run lets a node come and go until ctx is cancelled, or its labels are lost.
func (c *churn) run(ctx context.Context, n *churned) {
	for round := 0; ctx.Err() == nil; round++ {
		one, err := n.comeAndGo(context.WithoutCancel(ctx), round)
		c.mu.Lock()
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("node %s, round %d: %w", n.name, round, err))
			c.mu.Unlock()
			return
		}
		c.returns++
		if one.took > c.slowest.took {
			c.slowest = one
		}
		c.mu.Unlock()
	}
}

// stop lets every node come back once more, and fails if any label was lost.
func (c *churn) stop(t *testing.T) {
	t.Helper()
	c.stopped()
	c.done.Wait()
	require.NoError(t, errors.Join(c.errs...))
	require.Greater(t, c.returns, churners, "returns: the nodes are to come and go more than once meanwhile")
	t.Logf("%d returns of %d nodes, every label back; the slowest took %s", c.returns, churners, c.slowest)
}

// churned is a node and the labels that it is to have.
type churned struct {
	client client.WithWatch
	name   string
	labels map[string]string
}

// comeAndGo edits the labels, deletes the node right after that, creates it without them, and returns how long it took until they were
// back. An edit of a node that is not restored yet would be overwritten, so the next round begins after that.
func (n *churned) comeAndGo(ctx context.Context, round int) (returned, error) {
	n.labels = maps.Clone(n.labels)
	n.labels["round"] = strconv.Itoa(round)
	n.labels["example.com/drawn"] = rand.String(8)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"round":%q,"example.com/drawn":%q}}}`, n.labels["round"], n.labels["example.com/drawn"])
	if err := n.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return returned{}, err
	}
	if err := n.client.Delete(ctx, node); err != nil {
		return returned{}, err
	}
	if err := n.create(ctx, nil); err != nil {
		return returned{}, err
	}
	created := time.Now()
	err := wait.PollUntilContextTimeout(ctx, period, patience, true, func(ctx context.Context) (bool, error) {
		if err := n.client.Get(ctx, types.NamespacedName{Name: n.name}, node); err != nil {
			return false, err
		}
		return isRestored(node) && maps.Equal(withoutMarker(node.Labels), n.labels), nil
	})
	if err != nil {
		return returned{}, fmt.Errorf("it has %v and not %v: %w", node.Labels, n.labels, err)
	}
	return returned{n.name, created, time.Since(created)}, nil
}

// create makes a node that no pod is put onto.
func (n *churned) create(ctx context.Context, own map[string]string) error {
	return n.client.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: own},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	})
}
