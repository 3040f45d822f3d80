package boottime

import "time"

// step bounds the time for which a timer is set: timers stand still while the machine is suspended.
const step = time.Second

// Wait returns for how long to set a timer until a time by [Now]. When it fires, compare again.
func Wait(until, now time.Duration) time.Duration {
	if until <= now {
		return 0
	}
	return min(until-now, step)
}
