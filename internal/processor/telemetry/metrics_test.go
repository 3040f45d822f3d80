package telemetry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/processor/telemetry"
)

func TestReturnedAtIsHeldWithinTheSecondOfTheCreation(t *testing.T) {
	created := time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)
	for name, tc := range map[string]struct{ seen, want time.Time }{
		"seen in that second":          {created.Add(300 * time.Millisecond), created.Add(300 * time.Millisecond)},
		"seen when no watcher had run": {created.Add(time.Hour), created.Add(time.Second)},
		"by a clock that is behind":    {created.Add(-time.Minute), created},
		"not known":                    {time.Time{}, created},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, telemetry.ReturnedAt(created, tc.seen)) })
	}
}
