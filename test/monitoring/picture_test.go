package monitoring_test

import (
	"encoding/xml"
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

// TestPictureShowsTheDashboard: after a change of a dashboard, make monitoring DRAW=1 draws it again.
func TestPictureShowsTheDashboard(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			var picture struct {
				Groups []drawn `xml:"g"`
			}
			require.NoError(t, xml.Unmarshal(file(t, p.picture), &picture))
			all := p.panels(t)
			require.Len(t, picture.Groups, len(all), "run make monitoring DRAW=1")
			for i, panel := range all {
				group := picture.Groups[i]
				require.NotEmpty(t, group.Texts, panel.Title)
				assert.Equal(t, panel.Title, group.Texts[0], "run make monitoring DRAW=1")
				if panel.Type == grafana.Row {
					assert.Equal(t, "row", group.Class)
					continue
				}
				about := []string{panel.Description}
				for _, target := range panel.Targets {
					about = append(about, target.Expr)
				}
				assert.Equal(t, about, strings.Split(group.About, "\n"), "of %s: run make monitoring DRAW=1", panel.Title)
				assert.Greater(t, len(group.Texts), 1, "%s shows something", panel.Title)
				assert.NotContains(t, group.Texts[1:], "no data", panel.Title)
			}
		})
	}
}
