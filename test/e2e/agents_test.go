package e2e_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// controller applies labels to Nodes and notes in an annotation which of them it owns. It leaves a
// label alone that it finds with another value and that it does not own.
type controller struct {
	manager, annotation string
	read                func(value string) []string
	write               func(keys []string) string
}

// controllers are Talos and Cluster API, whose manager has the name of every program that is made
// with kubebuilder.
var controllers = map[string]controller{
	"Talos": {
		manager: "machined", annotation: "talos.dev/owned-labels",
		read: func(value string) (keys []string) {
			_ = json.Unmarshal([]byte(value), &keys) // at first there is none
			return keys
		},
		write: func(keys []string) string {
			text, _ := json.Marshal(keys) // strings
			return string(text)
		},
	},
	"Cluster API": {
		manager: "manager", annotation: "cluster.x-k8s.io/labels-from-machine",
		read:  func(value string) []string { return strings.Split(value, ",") },
		write: func(keys []string) string { return strings.Join(keys, ",") },
	},
}

// apply makes the labels of a node what the controller wants.
func (c controller) apply(e *env, name string, wanted labelSet) {
	e.t.Helper()
	require.NoError(e.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n := e.node(e.t, name)
		if n.Labels == nil {
			n.Labels = labelSet{}
		}
		owned := c.read(n.Annotations[c.annotation])
		var now []string
		for key, value := range wanted {
			if current, isThere := n.Labels[key]; !isThere || current == value || slices.Contains(owned, key) {
				n.Labels[key] = value
				now = append(now, key)
			}
		}
		for _, key := range owned {
			if _, isWanted := wanted[key]; !isWanted {
				delete(n.Labels, key)
			}
		}
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, c.annotation, c.write(now))
		return e.client.Update(e.t.Context(), n, client.FieldOwner(c.manager))
	}))
}

// TestControllerChangesLabelsWhileANodeIsAway: a label of the machine configuration gets another
// value, and another one is removed, while the Node is deleted. If the restore brought the former
// ones back, the controller would take them for someone else's and leave them for ever.
func TestControllerChangesLabelsWhileANodeIsAway(t *testing.T) {
	t.Parallel()
	for platform, c := range controllers {
		t.Run(platform, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor()
			name := e.name("node")
			first := e.createAs("kubelet", name, labelSet{"kubernetes.io/os": "linux"})
			c.apply(e, name, labelSet{"example.com/zone": "a", "example.com/extension": "2.1"})
			e.set(name, "rack", "r1")
			e.saved(name, labelSet{"kubernetes.io/os": "linux", "example.com/zone": "a", "example.com/extension": "2.1", "rack": "r1"})
			e.delete(name)
			e.recorded(first.UID, txn.Deleted)

			e.createAs("kubelet", name, labelSet{"kubernetes.io/os": "linux"})
			e.restored(name, labelSet{"kubernetes.io/os": "linux", "rack": "r1"})
			c.apply(e, name, labelSet{"example.com/zone": "b"})
			want := labelSet{"kubernetes.io/os": "linux", "example.com/zone": "b", "rack": "r1"}
			e.saved(name, want)
			e.hasRestored(t, name, want)

			c.apply(e, name, labelSet{})
			delete(want, "example.com/zone")
			assert.NotContains(t, e.saved(name, want).Overruled.Set(), "example.com/zone", "the controller has removed it")
		})
	}
}

// TestNextMachineAfterACopy: a Node is created from what kubectl get -o yaml printed, and another
// machine takes its name.
func TestNextMachineAfterACopy(t *testing.T) {
	t.Parallel()
	for mode, args := range map[string][]string{"a processor": nil, "the flags of merge": {"--restore-mode=merge"}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher()
			e.processor(args...)
			name := e.name("node")
			registered := labelSet{"agentpool": "a", "image": "2025.01", "kubernetes.io/os": "linux"}
			first := e.createAs("kubelet", name, registered)
			e.set(name, "rack", "r1")
			all := union(registered, labelSet{"rack": "r1"})
			e.saved(name, all)
			e.delete(name)
			e.recorded(first.UID, txn.Deleted)

			copied := e.createAs("kubectl-create", name, all)
			e.restored(name, all)
			e.applied(copied)
			e.set(name, "rack", "r2")
			e.saved(name, union(all, labelSet{"rack": "r2"}))
			e.delete(name)
			e.recorded(copied.UID, txn.Deleted)

			next := labelSet{"agentpool": "b", "kubernetes.io/os": "linux"}
			e.createAs("kubelet", name, next)
			e.restored(name, union(next, labelSet{"rack": "r2"}))
		})
	}
}

// TestNextMachineAfterAKubeletWithoutAName: kubelets of Kubernetes 1.23 gave no name.
func TestNextMachineAfterAKubeletWithoutAName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	name := e.name("node")
	registered := labelSet{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "pool": "a", "image": "2022"}
	first := e.createAs("Go-http-client", name, registered)
	e.set(name, "rack", "r1")
	e.saved(name, union(registered, labelSet{"rack": "r1"}))
	e.delete(name)
	e.recorded(first.UID, txn.Deleted)
	next := labelSet{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "pool": "b"}
	e.createAs("kubelet", name, next)
	e.restored(name, union(next, labelSet{"rack": "r1"}))
}

// TestPolicyThatLabelsNodesAtCreation: no field manager owns what a mutating policy adds to the
// request that creates a Node. The next machine brings its own value, until a person sets another.
func TestPolicyThatLabelsNodesAtCreation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	end := e.mutate(admissionregistrationv1.Create, `{"tier": object.metadata.?annotations[?"tier"].orValue("none")}`)
	defer end()
	e.eventually(func(c *assert.CollectT) {
		probe := e.name("probe-" + strings.ReplaceAll(time.Now().Format("150405.000"), ".", "-"))
		e.createAs("kubelet", probe, nil)
		assert.Equal(c, "none", e.node(c, probe).Labels["tier"])
	}, "the policy is in force")
	e.watcher()
	e.processor()
	name := e.name("node")
	lives := []struct{ brings, edit, want string }{{"gold", "", "gold"}, {"silver", "", "silver"}, {"bronze", "mine", "bronze"}, {"gold", "", "mine"}}
	want := labelSet{"rack": "r1"}
	for i, life := range lives {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"tier": life.brings}}, Spec: corev1.NodeSpec{Unschedulable: true}}
		e.nodes[name] = true
		require.NoError(t, e.client.Create(t.Context(), n, client.FieldOwner("kubelet")))
		require.Equal(t, life.brings, n.Labels["tier"])
		want["tier"] = life.want
		if i > 0 {
			e.restored(name, want)
			e.applied(n)
		} else {
			e.set(name, "rack", "r1")
		}
		if life.edit != "" {
			want["tier"] = life.edit
			e.set(name, "tier", life.edit)
		}
		e.saved(name, maps.Clone(want))
		e.delete(name)
		e.recorded(n.UID, txn.Deleted)
	}
}
