package simulation

import "nodekeeper.dev/test/schedules"

// lengths makes most schedules short.
var lengths = schedules.Lengths{Min: 60, Max: 300, Long: 900, LongOneIn: 6, Stream: 1} //nolint:gochecknoglobals // a constant
