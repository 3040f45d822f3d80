// Package grafana does with a dashboard what Grafana does with it, as far as the one of
// deploy/monitoring needs that: it reads the panels, gives the variables in their queries a value,
// and formats what is shown.
package grafana

import (
	"encoding/json"
	"fmt"
)

// The types of panels that the dashboard has.
const (
	Row        = "row"
	Stat       = "stat"
	TimeSeries = "timeseries"
)

// Columns is how many units of width the grid has.
const Columns = 24

// Dashboard is the part of a dashboard that is drawn.
type Dashboard struct {
	Title  string
	Panels []Panel
}

// Panel is a part of the grid.
type Panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults Field }
	Targets                  []Target
}

// Field is how the values of a panel are shown.
type Field struct {
	Unit string
	// NoValue is shown where there is no value; "" for Grafana's own words.
	NoValue    string
	Thresholds struct{ Steps []Threshold }
}

// Threshold colours the values from its own on.
type Threshold struct {
	Color string
	// Value is nil for all values.
	Value *float64
}

// Target is a query of a panel.
type Target struct{ Expr, LegendFormat string }

// Parse returns the dashboard in a file.
func Parse(content []byte) (Dashboard, error) {
	var d Dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return Dashboard{}, fmt.Errorf("reading a dashboard: %w", err)
	}
	return d, nil
}

// Colour returns the name of the colour of a value, as the thresholds have it.
func (f Field) Colour(value float64) string {
	name := "text"
	for _, step := range f.Thresholds.Steps { // in ascending order
		if step.Value == nil || value >= *step.Value {
			name = step.Color
		}
	}
	return name
}
