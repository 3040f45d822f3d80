package monitoring_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/monitoring/grafana"
)

// drawn is what the picture shows of a panel, or of a row of panels.
type drawn struct {
	Class string `xml:"class,attr"`
	// About is the description and the queries.
	About string `xml:"desc"`
	// Texts are the title, and whatever the panel shows.
	Texts []string `xml:"text"`
}

// TestPictureShowsTheDashboard: after a change of the dashboard, make monitoring DRAW=1 draws it
// again.
func TestPictureShowsTheDashboard(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "pictures", "dashboard.svg"))
	require.NoError(t, err)
	var picture struct {
		Groups []drawn `xml:"g"`
	}
	require.NoError(t, xml.Unmarshal(content, &picture))
	all := panels(t)
	require.Len(t, picture.Groups, len(all), "run make monitoring DRAW=1")
	for i, p := range all {
		group := picture.Groups[i]
		require.NotEmpty(t, group.Texts, p.Title)
		assert.Equal(t, p.Title, group.Texts[0], "run make monitoring DRAW=1")
		if p.Type == grafana.Row {
			assert.Equal(t, "row", group.Class)
			continue
		}
		about := []string{p.Description}
		for _, target := range p.Targets {
			about = append(about, target.Expr)
		}
		assert.Equal(t, about, strings.Split(group.About, "\n"), "of %s: run make monitoring DRAW=1", p.Title)
		assert.Greater(t, len(group.Texts), 1, "%s shows something", p.Title)
	}
}
