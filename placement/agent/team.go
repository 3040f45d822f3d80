package agent

import (
	"context"
	"time"

	"nodekeeper.dev/placement/contract"
)

// team does the work that contracts list: goroutines of this process or another program. Its
// methods belong to the goroutine of the loop that uses it.
type team interface {
	// follow stops and starts what a contract requires, as far as that is possible now. It is called
	// after each event, and does nothing for a contract that names no incarnation.
	follow(ctx context.Context, c *contract.Contract)
	// stopAll stops everything. It is called after each event until nothing runs.
	stopAll(ctx context.Context)
	// work returns the state of everything that runs, or may run.
	work() map[contract.Unit]contract.Work
	// extend reports when the latest renewal of the Lease was sent.
	extend(ctx context.Context, sent time.Duration)
	// next delivers events, which must be passed to handle.
	next() <-chan event
	handle(ctx context.Context, e event)
	// close is called when no event is received any longer.
	close()
}

var (
	_ team = (*crew)(nil)
	_ team = (*dataPlane)(nil)
)
