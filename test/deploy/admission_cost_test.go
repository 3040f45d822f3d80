package deploy_test

import (
	"bytes"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"
)

// spent is what the API server has done since it started: how often, and for how many seconds in all.
type spent struct{ count, seconds float64 }

func (a spent) since(b spent) spent { return spent{a.count - b.count, a.seconds - b.seconds} }

// costs are what the writes of Nodes and ConfigMaps took, and the policies in all requests.
type costs struct{ writes, policies spent }

func costsOf(t *testing.T) costs {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(api.Config)
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

// sum adds up the histograms each of whose labels has one of the values.
func sum(family *dto.MetricFamily, values map[string]string) (total spent) {
	for _, m := range family.GetMetric() {
		matches := 0
		for _, label := range m.GetLabel() {
			for _, value := range strings.Fields(values[label.GetName()]) {
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

// TestPoliciesCostLittleOfARestore lets nodes with twelve labels go and come back, and compares the time that the API server spends on
// the policies with what it spends on the writes: its own figures, of the same requests. With -v it prints them.
func TestPoliciesCostLittleOfARestore(t *testing.T) {
	s := newStory(t)
	nodes := &herd{story: s, prefix: "costly-"}
	t.Cleanup(nodes.delete)
	s.start("watcher")
	s.start("processor")
	nodes.create(true)
	nodes.areRecorded()
	before := costsOf(t)
	nodes.delete()
	nodes.create(false)
	nodes.areRestored()
	after := costsOf(t)
	writes, policies := after.writes.since(before.writes), after.policies.since(before.policies)
	require.NotZero(t, writes.count)
	require.GreaterOrEqual(t, policies.count, float64(*sizingNodes)*5, "the policies looked at the requests")
	t.Logf("%d nodes: %.0f writes of Nodes and ConfigMaps took %.0f µs each; the policies took %.0f µs for each node, %.1f %% of its writes' time",
		*sizingNodes, writes.count, writes.seconds/writes.count*1e6, policies.seconds/float64(*sizingNodes)*1e6, policies.seconds/writes.seconds*100)
	assert.Less(t, policies.seconds, writes.seconds/4)
}
