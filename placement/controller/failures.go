package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// retryPeriod and maxRetryPeriod bound the delay before a request that failed is repeated. The
// delay doubles with each failure.
const retryPeriod, maxRetryPeriod = time.Second, time.Minute

// failure is the history of a request that failed.
type failure struct {
	count           int
	resourceVersion string
	until           time.Time
}

// mayTry reports whether a request may be sent. A failed request may be sent again after its delay,
// or when its object has changed. Otherwise mayTry schedules a pass at the end of the delay.
func (p *pass) mayTry(request, resourceVersion string) bool {
	f := p.failures[request]
	if f == nil || f.resourceVersion != resourceVersion || !p.now.Before(f.until) {
		return true
	}
	p.wake(f.until.Sub(p.now))
	return false
}

// failed records that a request failed, and logs that.
func (p *pass) failed(ctx context.Context, request, resourceVersion string, err error, what string, keysAndValues ...any) {
	p.delay(request, resourceVersion)
	p.log(ctx, err, what, keysAndValues...)
}

// delay delays the repetition of a request.
func (p *pass) delay(request, resourceVersion string) {
	f := p.failures[request]
	if f == nil {
		f = &failure{}
		p.failures[request] = f
	}
	d := min(retryPeriod<<min(f.count, 10), maxRetryPeriod)
	f.count, f.resourceVersion, f.until = f.count+1, resourceVersion, time.Now().Add(d)
	p.wake(d)
}

// log logs an error, except at the end of the process.
func (p *pass) log(ctx context.Context, err error, what string, keysAndValues ...any) {
	if ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info(what, append(keysAndValues, "error", err.Error())...)
	}
}

// forgetFailures forgets failures that were not repeated.
func (p *pass) forgetFailures() {
	for request, f := range p.failures {
		if p.now.Sub(f.until) > maxRetryPeriod {
			delete(p.failures, request)
		}
	}
}
