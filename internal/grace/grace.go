// Package grace lets what is under way outlive the order to end, for a while.
package grace

import (
	"context"
	"time"
)

// Context returns a context with the values of ctx that ends when cancel is called, or the given time after ctx has ended. Cancel
// is to be called when it is not needed any more.
func Context(ctx context.Context, after time.Duration) (longer context.Context, cancel context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(after, end) })
	return longer, func() {
		stop()
		end()
	}
}
