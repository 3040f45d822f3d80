// Package grace lets work in progress outlive a shutdown for a while.
package grace

import (
	"context"
	"time"
)

// Context returns a context with the values of ctx that ends when cancel is called, or the given
// time after ctx has ended. Call cancel when the context is no longer needed.
func Context(ctx context.Context, after time.Duration) (longer context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(after, end) })
	return longer, func() {
		stop()
		end()
	}
}
