package grafana

import (
	"math"
	"strconv"
)

// mostTicks bounds the ticks of an axis, without that of zero.
const mostTicks = 5

// Tick is a place on an axis.
type Tick struct {
	Value float64
	Text  string
}

// Ticks returns those of an axis from zero that shows values up to highest. The axis ends at the
// last of them.
func Ticks(highest float64, unit string) []Tick {
	if highest <= 0 {
		highest = 1
	}
	s := scaleOf(highest, unit)
	step := stepOf(highest/s.factor, unit)
	places := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var all []Tick
	for i := 0; ; i++ {
		value := step * float64(i)
		all = append(all, Tick{Value: value * s.factor, Text: strconv.FormatFloat(value, 'f', places, 64) + s.suffix})
		if value*s.factor >= highest {
			return all
		}
	}
}

// stepOf returns the smallest round number that needs no more than the most ticks to reach the
// highest value.
func stepOf(highest float64, unit string) float64 {
	rounds := []float64{1, 2, 5, 10}
	if unit == "bytes" && highest >= 16 {
		for step := 4.0; ; step *= 2 {
			if step*mostTicks >= highest {
				return step
			}
		}
	}
	magnitude := math.Pow10(int(math.Floor(math.Log10(highest / mostTicks))))
	for _, round := range rounds {
		if round*magnitude*mostTicks >= highest*(1-1e-9) {
			return round * magnitude
		}
	}
	return 10 * magnitude
}
