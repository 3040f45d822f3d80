// Command plot draws the figures of make bench: for each CSV file that it is given, an SVG file beside it.
package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width, height = 9 * vg.Inch, 3.6 * vg.Inch
	bar           = vg.Inch / 4
	// least is how many writes the bare client makes for each node.
	least = 7
)

func main() {
	for _, path := range os.Args[1:] {
		if err := draws(path); err != nil {
			fmt.Fprintf(os.Stderr, "plot: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// bulk is what was measured with one number of replicas, by the name of the figure.
type bulk struct {
	replicas string
	figures  map[string]float64
}

func draws(path string) error {
	nodes, measured, err := read(path)
	if err != nil {
		return err
	}
	times, err := timePlot(nodes, measured)
	if err != nil {
		return err
	}
	calls, err := callPlot(measured)
	if err != nil {
		return err
	}
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Millimeter * 6, PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: vg.Millimeter}
	for i, row := range plot.Align([][]*plot.Plot{{times, calls}}, tiles, draw.New(canvas))[0] {
		[]*plot.Plot{times, calls}[i].Draw(row)
	}
	file, err := os.Create(strings.TrimSuffix(path, ".csv") + ".svg")
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

// read returns the figures of the scene "bulk" by replicas, in the order of the file.
func read(path string) (nodes string, measured []bulk, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return "", nil, err
	}
	for _, row := range rows { // scene, nodes, replicas, what, unit, value
		if row[0] != "bulk" {
			continue
		}
		value, err := strconv.ParseFloat(row[5], 64)
		if err != nil {
			return "", nil, err
		}
		nodes = row[1]
		if len(measured) == 0 || measured[len(measured)-1].replicas != row[2] {
			measured = append(measured, bulk{replicas: row[2], figures: map[string]float64{}})
		}
		measured[len(measured)-1].figures[row[3]] = value
	}
	if len(measured) == 0 {
		return "", nil, errors.New("there are no figures of the scene bulk")
	}
	return nodes, measured, nil
}

func newPlot(title, y string, measured []bulk) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min = title, y, 0
	p.BackgroundColor = color.White
	p.Legend.Top, p.Legend.Left = true, true
	names := make([]string, 0, len(measured))
	for _, m := range measured {
		names = append(names, m.replicas+" + "+m.replicas)
	}
	p.NominalX(names...)
	p.X.Label.Text = "watchers + processors"
	return p
}

// timePlot has a pair of bars for each number of replicas.
func timePlot(nodes string, measured []bulk) (*plot.Plot, error) {
	p := newPlot(nodes+" nodes are deleted and come back", "seconds", measured)
	for i, what := range []string{"nodekeeper, all restored and drained", "bare client"} {
		bars, err := plotter.NewBarChart(values(measured, what), bar)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = plotutil.SoftColors[i], 0
		bars.Offset = bar * vg.Length(2*i-1) / 2
		p.Add(bars)
		p.Legend.Add(what, bars)
	}
	p.Y.Max *= 1.3 // for the legend
	return p, nil
}

// callPlot has a stack of the kinds of writes for each number of replicas, and a line where the bare client is.
func callPlot(measured []bulk) (*plot.Plot, error) {
	p := newPlot("writes for each of them", "requests", measured)
	var below *plotter.BarChart
	for i, what := range kinds(measured) {
		bars, err := plotter.NewBarChart(values(measured, what), bar)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = plotutil.SoftColors[i%len(plotutil.SoftColors)], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(strings.TrimSuffix(what, " per node"), bars)
	}
	line, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: least}, {X: float64(len(measured)) - 0.5, Y: least}})
	if err != nil {
		return nil, err
	}
	line.Dashes = plotutil.Dashes(1)
	p.Add(line)
	p.Legend.Add("bare client", line)
	p.Y.Max *= 1.8
	return p, nil
}

// kinds are the names of the figures that count writes of one kind.
func kinds(measured []bulk) []string {
	var all []string
	for _, m := range measured {
		for what := range m.figures {
			for _, verb := range []string{" POST per node", " PUT per node", " PATCH per node", " DELETE per node"} {
				if strings.HasSuffix(what, verb) && !slices.Contains(all, what) {
					all = append(all, what)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func values(measured []bulk, what string) plotter.Values {
	all := make(plotter.Values, 0, len(measured))
	for _, m := range measured {
		all = append(all, m.figures[what])
	}
	return all
}
