package grafana_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/monitoring/grafana"
)

func TestRateIntervalHasRoomForFourScrapes(t *testing.T) {
	target := grafana.Target{Expr: "rate(a[$__rate_interval])/rate(b[$__rate_interval])"}
	assert.Equal(t, "rate(a[4s])/rate(b[4s])", target.Query(grafana.Interval{Step: time.Second, Scrape: time.Second}))
	assert.Equal(t, "rate(a[1m10s])/rate(b[1m10s])", target.Query(grafana.Interval{Step: time.Minute, Scrape: 10 * time.Second}))
}

func TestLegendHasTheLabels(t *testing.T) {
	labels := map[string]string{"pod": "watcher-1", "name": "node"}
	label := func(name string) string { return labels[name] }
	assert.Equal(t, "watcher-1 node", grafana.Target{LegendFormat: "{{pod}} {{ name }}"}.Legend(label))
	assert.Equal(t, "p50", grafana.Target{LegendFormat: "p50"}.Legend(label))
	assert.Equal(t, "left out: ", grafana.Target{LegendFormat: "left out: {{reason}}"}.Legend(label))
}

func TestColourIsThatOfTheLastThresholdThatIsReached(t *testing.T) {
	d, err := grafana.Parse([]byte(`{"panels": [{"fieldConfig": {"defaults": {"thresholds": {"steps": [
		{"color": "green", "value": null}, {"color": "orange", "value": 10}, {"color": "red", "value": 60}]}}}}]}`))
	require.NoError(t, err)
	field := d.Panels[0].FieldConfig.Defaults
	for value, want := range map[float64]string{0: "green", 9.9: "green", 10: "orange", 60: "red", 1000: "red"} {
		assert.Equal(t, want, field.Colour(value), "%g", value)
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "s", "0 s"},
		{0.0042, "s", "4.20 ms"},
		{0.25, "s", "250 ms"},
		{90, "s", "1.50 min"},
		{7775900, "s", "12.9 weeks"},
		{60, "short", "60"},
		{5000, "short", "5 K"},
		{1.2, "short", "1.20"},
		{3.14159, "ops", "3.14 ops/s"},
		{36 << 20, "bytes", "36 MiB"},
		{1, "unknown", "1"},
	} {
		assert.Equal(t, tc.want, grafana.Format(tc.value, tc.unit))
	}
}

func TestTicksReachTheHighestValue(t *testing.T) {
	for _, tc := range []struct {
		highest float64
		unit    string
		want    []string
	}{
		{0, "short", []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}},
		{60, "short", []string{"0", "20", "40", "60"}},
		{0.0048, "s", []string{"0 ms", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms"}},
		{2.4, "s", []string{"0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s"}},
		{39 << 20, "bytes", []string{"0 MiB", "8 MiB", "16 MiB", "24 MiB", "32 MiB", "40 MiB"}},
	} {
		ticks := grafana.Ticks(tc.highest, tc.unit)
		var texts []string
		for _, tick := range ticks {
			texts = append(texts, tick.Text)
		}
		assert.Equal(t, tc.want, texts)
		assert.GreaterOrEqual(t, ticks[len(ticks)-1].Value, tc.highest)
	}
}
