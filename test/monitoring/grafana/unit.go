package grafana

import (
	"math"
	"strconv"
)

// scale is a larger or smaller unit.
type scale struct {
	factor float64
	suffix string
}

// scales are those of each unit, the largest first.
var scales = map[string][]scale{
	"s": {
		{604800, " weeks"}, {86400, " days"}, {3600, " hours"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"},
	},
	"short": {{1e9, " Bil"}, {1e6, " Mil"}, {1e3, " K"}, {1, ""}},
	"ops":   {{1e6, " Mops/s"}, {1e3, " Kops/s"}, {1, " ops/s"}},
	"reqps": {{1e6, " Mreq/s"}, {1e3, " Kreq/s"}, {1, " req/s"}},
	"bytes": {{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}, {1, " B"}},
}

// Known reports whether [Format] knows a unit.
func Known(unit string) bool { return scales[unit] != nil }

// Format writes a value as a panel of that unit does. A unit that is not known leaves no trace.
func Format(value float64, unit string) string {
	s := scaleOf(value, unit)
	value /= s.factor
	return strconv.FormatFloat(value, 'f', decimals(value), 64) + s.suffix
}

// scaleOf returns the largest scale of the unit in which the value is not less than 1, else the
// smallest. 0 has the scale 1.
func scaleOf(value float64, unit string) scale {
	all := scales[unit]
	if len(all) == 0 {
		return scale{factor: 1}
	}
	for _, s := range all {
		if math.Abs(value) >= s.factor || (value == 0 && s.factor == 1) {
			return s
		}
	}
	return all[len(all)-1]
}

// decimals is how many of them Grafana shows of a value: with them it has three digits. Whole
// numbers have none.
func decimals(value float64) int {
	if value == math.Trunc(value) {
		return 0
	}
	return max(0, 2-int(math.Floor(math.Log10(math.Abs(value)))))
}
