package deploy_test

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

var (
	// policyTurns and policyNodes are increased for measurements.
	policyTurns = flag.Int("deploy.turns", 1, "how often the cost of the policies is measured")
	policyNodes = flag.Int("deploy.policy-nodes", 100, "how many nodes the cost of the policies is measured with")
)

// spent is the work of the API server since it started: a number of operations and their total
// seconds.
type spent struct{ count, seconds float64 }

func (a spent) since(b spent) spent { return spent{a.count - b.count, a.seconds - b.seconds} }

// costs are the durations of writes of Nodes and ConfigMaps, and of the policies in all requests.
type costs struct{ writes, policies spent }

func costsOf(t *testing.T, c *cluster) costs {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(c.plane.Config)
	require.NoError(t, err)
	text, err := d.RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	return costs{
		writes: sum(families["apiserver_request_duration_seconds"], map[string]string{
			"resource": "nodes configmaps", "verb": "POST PUT PATCH DELETE",
		}),
		policies: sum(families["apiserver_admission_controller_admission_duration_seconds"], map[string]string{
			"name": policyKind, "type": "validate",
		}),
	}
}

// sum adds the histograms whose labels have the given values.
func sum(family *dto.MetricFamily, values map[string]string) (total spent) {
	for _, m := range family.GetMetric() {
		matches := 0
		for _, label := range m.GetLabel() {
			for value := range strings.FieldsSeq(values[label.GetName()]) {
				if value == label.GetValue() {
					matches++
				}
			}
		}
		if matches == len(values) {
			total.count += float64(m.GetHistogram().GetSampleCount())
			total.seconds += m.GetHistogram().GetSampleSum()
		}
	}
	return total
}

// TestPoliciesCostLittleOfARestore deletes and recreates nodes with twelve labels, alternately with
// and without the policies. It compares the CPU time of the API server, and the durations in its
// metrics: of the policies, and of the writes that these check. With -v it prints all
// figures.
func TestPoliciesCostLittleOfARestore(t *testing.T) {
	s := newStory(t, variant{minikube, nil})
	nodes := &herd{story: s, prefix: "costly-", count: *policyNodes}
	t.Cleanup(nodes.delete)
	s.start("watcher")
	s.start("processor")
	nodes.create(true)
	nodes.areRecorded()
	var with, without []turn
	// If the machine stalls during a policy, that looks expensive.
	const rounds = 5
	cheap := func(o turn) bool { return o.policies.seconds < o.writes.seconds/4 }
	for n := 0; n < *policyTurns || n < rounds && !slices.ContainsFunc(with, cheap); n++ {
		s.policies(false)
		without = append(without, nodes.turn())
		s.policies(true)
		with = append(with, nodes.turn())
	}
	for i := range with {
		t.Logf("without: %s", without[i])
		t.Logf("with:    %s", with[i])
	}
	assert.True(t, slices.ContainsFunc(with, cheap), "the policies take a quarter of the time of the writes")
	for _, one := range with {
		assert.GreaterOrEqual(t, one.policies.count, float64(*policyNodes)*5, "the policies were asked")
	}
}

// turn is the cost of deleting and recreating each node once.
type turn struct {
	costs
	cpu time.Duration
}

func (o turn) String() string {
	each := func(seconds float64) float64 { return seconds / float64(*policyNodes) * 1e3 }
	return fmt.Sprintf("for each node %.2f ms CPU; %.1f writes of Nodes and ConfigMaps in %.2f ms; admission policies in %.2f ms, %.1f %% of the writes",
		each(o.cpu.Seconds()), o.writes.count/float64(*policyNodes), each(o.writes.seconds), each(o.policies.seconds),
		o.policies.seconds/o.writes.seconds*100)
}

func (h *herd) turn() turn {
	h.story.t.Helper()
	pid, err := h.story.client.plane.PID(controlplane.APIServer)
	require.NoError(h.story.t, err)
	usage, err := programs.UsageOf(pid)
	require.NoError(h.story.t, err)
	before := costsOf(h.story.t, h.story.client)
	h.delete()
	h.create(false)
	h.areRestored()
	after := costsOf(h.story.t, h.story.client)
	used, err := programs.UsageOf(pid)
	require.NoError(h.story.t, err)
	return turn{costs{after.writes.since(before.writes), after.policies.since(before.policies)}, used.CPU - usage.CPU}
}

// policies turns the policies on or off, and waits until that has taken effect.
func (s *story) policies(on bool) {
	s.t.Helper()
	if on {
		install(s.t, s.client)
		return
	}
	for _, obj := range render(s.t, base) {
		if obj.GetKind() == policyKind || obj.GetKind() == bindingKind {
			require.NoError(s.t, s.client.Delete(s.t.Context(), obj))
		}
	}
	forger, processor := editor(s.t, s.client), accountOf(s.t, s.client, "processor")
	probe := addNode(s.t, s.client, bareNode())
	s.eventually(func(c *assert.CollectT) {
		for _, obj := range []client.Object{aTransaction("probe"), aRecord("probe"), retentionLease()} {
			assert.NoError(c, forger.Create(s.t.Context(), obj, client.DryRunAll))
		}
		assert.NoError(c, processor.Patch(s.t.Context(), probe.DeepCopy(), merge(`{"metadata":{"annotations":{"a":"b"}}}`), client.DryRunAll))
	}, "the policies are off")
}
