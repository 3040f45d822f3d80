// Package metrics reads the Prometheus metrics of programs, or of a registry in a test.
package metrics

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Samples maps names with labels to values, for example
// `nodekeeper_transactions_pending{type="added"}`. A histogram is represented by its _count and
// _sum.
type Samples map[string]float64

// Gather returns the metrics of a registry.
func Gather(from prometheus.Gatherer) (Samples, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	samples := Samples{}
	for _, family := range families {
		samples.add(family)
	}
	return samples, nil
}

// Scrape returns the metrics of a program at an address (host:port).
func Scrape(ctx context.Context, address string) (Samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", address, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", address, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read completely
	families, err := parse(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", address, err)
	}
	samples := Samples{}
	for _, family := range families {
		samples.add(family)
	}
	return samples, nil
}

// OfAPIServer returns the metrics of an API server, by their names.
func OfAPIServer(ctx context.Context, config *rest.Config) (map[string]*dto.MetricFamily, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	text, err := d.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(text))
}

func parse(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// Label returns the value of a label of a metric, "" if the metric has no such label.
func Label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// Missing returns those of the metrics, as queries name them, that have no sample.
func (s Samples) Missing(metrics []string) (missing []string) {
	names := map[string]bool{}
	for sample := range s {
		name, _, _ := strings.Cut(sample, "{")
		names[name] = true
	}
	for _, name := range metrics {
		if name = strings.Replace(name, "_bucket", "_count", 1); !names[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func (s Samples) add(family *dto.MetricFamily) {
	for _, m := range family.GetMetric() {
		key := labelsOf(m)
		switch {
		case m.Histogram != nil:
			s[family.GetName()+"_count"+key] = float64(m.GetHistogram().GetSampleCount())
			s[family.GetName()+"_sum"+key] = m.GetHistogram().GetSampleSum()
		case m.Gauge != nil:
			s[family.GetName()+key] = m.GetGauge().GetValue()
		case m.Counter != nil:
			s[family.GetName()+key] = m.GetCounter().GetValue()
		}
	}
}

func labelsOf(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(m.GetLabel()))
	for _, label := range m.GetLabel() {
		pairs = append(pairs, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
