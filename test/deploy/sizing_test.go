package deploy_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/test/programs"
)

// sizingNodes is 5000 in docs/how-to/size.md, the number that deploy/base is for.
var sizingNodes = flag.Int("deploy.nodes", 300, "how many nodes the memory of the programs is measured with")

// TestRequestsHoldTheProgramsMemory runs a watcher and a processor with that many nodes, deletes
// and recreates all nodes, and then restarts the programs and starts a webhook. At the end it
// compares their memory with the requests in their manifests.
func TestRequestsHoldTheProgramsMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a process takes is read from /proc")
	}
	s := newStory(t, variant{minikube, []string{withAdmission}})
	nodes := &herd{story: s, prefix: "sized-", count: *sizingNodes}
	t.Cleanup(nodes.delete)
	nodes.create(true)
	s.start("watcher")
	s.start("processor")
	nodes.areRecorded()
	nodes.delete()
	begin := time.Now()
	nodes.create(false)
	nodes.areRestored()
	t.Logf("%d nodes came back at once: all restored after %s", *sizingNodes, time.Since(begin).Round(time.Second))
	s.start("watcher")
	s.start("processor")
	s.webhook() // last, so that the processors have restored all nodes

	requested := map[string]int64{}
	dir := sizedFor()
	for _, d := range all[appsv1.Deployment](t, variant{dir, []string{withAdmission}}.render(t), "Deployment") {
		requested[d.Name] = d.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().Value()
	}
	for _, p := range s.programs {
		used, err := programs.UsageOf(p.PID())
		require.NoError(t, err)
		t.Logf("%s took at most %.0f MiB, and %.1f s of CPU", p.Identity, used.PeakMiB(), used.CPU.Seconds())
		assert.Less(t, used.PeakMemory, requested[p.Name], "the peak of the memory of %s, and what %s requests for it", p.Identity, dir)
	}
}

// sizedFor returns the smallest manifests that are for so many nodes.
func sizedFor() string {
	if *sizingNodes <= 300 {
		return minikube
	}
	return base
}

// herd is a set of nodes.
type herd struct {
	story  *story
	prefix string
	count  int
}

// each calls do for every node, several at a time.
func (h *herd) each(do func(node *corev1.Node) error) {
	h.story.t.Helper()
	errs := make([]error, h.count)
	workqueue.ParallelizeUntil(context.Background(), 32, len(errs), func(i int) {
		errs[i] = do(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.prefix + strconv.Itoa(i)}})
	})
	for _, err := range errs {
		require.NoError(h.story.t, err)
	}
}

// create creates all nodes with twelve labels each, or with one, as a kubelet does.
func (h *herd) create(labelled bool) {
	h.story.t.Helper()
	h.each(func(node *corev1.Node) error {
		node.Labels = map[string]string{corev1.LabelHostname: node.Name}
		for i := range 11 {
			if labelled {
				node.Labels[fmt.Sprintf("example.com/a-label-of-usual-length-%d", i)] = "its-value-" + node.Name
			}
		}
		return h.story.client.Create(context.Background(), node)
	})
}

func (h *herd) delete() {
	h.story.t.Helper()
	h.each(func(node *corev1.Node) error {
		return client.IgnoreNotFound(h.story.client.Delete(context.Background(), node))
	})
}

func (h *herd) areRecorded() {
	h.story.t.Helper()
	h.eventually(func(c *assert.CollectT) {
		records := &metav1.PartialObjectMetadataList{}
		records.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		require.NoError(c, h.story.client.List(h.story.t.Context(), records, client.InNamespace(metadata),
			client.MatchingLabels{"app.kubernetes.io/managed-by": "nodekeeper"}))
		assert.GreaterOrEqual(c, len(records.Items), h.count)
	})
}

func (h *herd) areRestored() {
	h.story.t.Helper()
	h.eventually(func(c *assert.CollectT) {
		nodes := &corev1.NodeList{}
		require.NoError(c, h.story.client.List(h.story.t.Context(), nodes, client.HasLabels{labels.Marker}))
		restored := 0
		for _, node := range nodes.Items {
			if len(node.Labels) == 12+1 {
				restored++
			}
		}
		assert.Equal(c, h.count, restored)
	})
}

// eventually polls rarely, since each check is work for the API server.
func (h *herd) eventually(condition func(c *assert.CollectT)) {
	h.story.t.Helper()
	require.EventuallyWithT(h.story.t, condition, patience+time.Duration(h.count)*100*time.Millisecond, time.Second)
}
