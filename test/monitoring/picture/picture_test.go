package main

import (
	"encoding/xml"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/monitoring/cluster"
	"nodekeeper.dev/test/monitoring/grafana"
	"nodekeeper.dev/test/monitoring/monitor"
)

// dashboard has a panel of each kind, with and without data.
const dashboard = `{"title": "nodes & more", "panels": [
	{"type": "row", "title": "All"},
	{"type": "stat", "title": "Depth", "gridPos": {"w": 4, "h": 4}, "targets": [{"expr": "sum(depth)"}], "fieldConfig": {"defaults": {
		"unit": "s", "thresholds": {"steps": [{"color": "green", "value": null}, {"color": "red", "value": 60}]}}}},
	{"type": "stat", "title": "Nothing", "gridPos": {"w": 4, "h": 4}, "targets": [{"expr": "nothing"}]},
	{"type": "stat", "title": "Off", "gridPos": {"w": 4, "h": 4}, "targets": [{"expr": "nothing"}], "fieldConfig": {"defaults": {"noValue": "switched off"}}},
	{"type": "timeseries", "title": "Depths", "gridPos": {"w": 12, "h": 7}, "targets": [{"expr": "depth", "legendFormat": "{{pod}}"}], "fieldConfig": {"defaults": {"unit": "s"}}},
	{"type": "timeseries", "title": "Ratio", "gridPos": {"w": 12, "h": 7}, "targets": [{"expr": "0 * depth / 0", "legendFormat": "{{pod}}"}], "fieldConfig": {"defaults": {"unit": "s"}}}
]}`

// samples end for pod b, and have a gap for pod a.
const samples = `load 1s
  depth{pod="b"} 1 2 3 stale
  depth{pod="a"} 30 31 stale _ _ 90x15`

// group is an element of the picture.
type group struct {
	Rect struct {
		Class string `xml:"class,attr"`
	} `xml:"rect"`
	Texts []string `xml:"text"`
	Paths []struct {
		Class string `xml:"class,attr"`
		D     string `xml:"d,attr"`
	} `xml:"path"`
}

func TestPictureShowsWhatTheQueriesFind(t *testing.T) {
	storage := promqltest.LoadedStorage(t, samples)
	d, err := grafana.Parse([]byte(dashboard))
	require.NoError(t, err)
	from := time.Unix(0, 0)
	story := cluster.Story{From: from, To: from.Add(20 * time.Second), Events: []cluster.Event{{At: from.Add(time.Second), What: "a <thing> happens"}}}
	shown, err := evaluate(t.Context(), d, monitor.Archive{From: story.From, To: story.To, Step: time.Second, Samples: storage})
	require.NoError(t, err)
	var picture struct {
		Texts  []string `xml:"text"`
		Groups []group  `xml:"g"`
	}
	require.NoError(t, xml.Unmarshal(draw(d.Title, "a test", shown, story), &picture))

	assert.Equal(t, []string{"nodes & more", "a test", "1", "1 s", "a <thing> happens"}, picture.Texts)
	require.Len(t, picture.Groups, 6)
	assert.Equal(t, []string{"All"}, picture.Groups[0].Texts)
	assert.Equal(t, []string{"Depth", "1.50 min"}, picture.Groups[1].Texts)
	assert.Equal(t, "red", picture.Groups[1].Rect.Class)
	assert.Equal(t, []string{"Nothing", "no data"}, picture.Groups[2].Texts)
	assert.Equal(t, []string{"Off", "switched off"}, picture.Groups[3].Texts)
	assert.Equal(t, []string{"Depths", "a", "b"}, picture.Groups[4].Texts)
	assert.Equal(t, []string{"Ratio", "no data"}, picture.Groups[5].Texts)
}

func TestQueriesThatFindNothingAreNamed(t *testing.T) {
	storage := promqltest.LoadedStorage(t, samples)
	d, err := grafana.Parse([]byte(dashboard))
	require.NoError(t, err)
	from := time.Unix(0, 0)
	shown, err := evaluate(t.Context(), d, monitor.Archive{From: from, To: from.Add(20 * time.Second), Step: time.Second, Samples: storage})
	require.NoError(t, err)
	assert.EqualError(t, complete(shown), `panel "Nothing": there is no data for nothing
panel "Ratio": there is no data for 0 * depth / 0`)
	assert.NoError(t, complete(shown[:2]))
}

func TestLineEndsWhereASeriesHasAGap(t *testing.T) {
	at := func(second int) point { return point{at: time.Unix(int64(second), 0), value: float64(second)} }
	assert.Equal(t, [][]point{{at(0), at(1)}, {at(5)}, {at(9), at(10)}}, runs([]point{at(0), at(1), at(5), at(9), at(10)}))
	assert.Empty(t, runs(nil))
}

func TestLineLeavesOutWhatChangesNothing(t *testing.T) {
	story := cluster.Story{From: time.Unix(0, 0)}
	var points []point
	for second, value := range []float64{0, 0, 0, 10, 0} {
		points = append(points, point{at: time.Unix(int64(second), 0), value: value})
	}
	to := plane{left: 100, bottom: 50, width: 40, height: 50, seconds: 4, highest: 10}
	assert.Equal(t, "100.0 50.0L120.0 50.0L130.0 0.0L140.0 50.0", to.line(story, points))
}
