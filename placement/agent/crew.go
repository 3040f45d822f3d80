package agent

import (
	"cmp"
	"context"
	"time"

	"nodekeeper.dev/placement/contract"
)

const (
	// minBackoff and maxBackoff bound the delay before a Worker that has returned by itself is
	// called again. The delay doubles with each failure. A Worker that has worked for maxBackoff
	// starts again with minBackoff.
	minBackoff, maxBackoff = time.Second, time.Minute
	// maxFailure bounds the text of a failure in an acknowledgement, in bytes.
	maxFailure = 256
)

// crew is the team of one incarnation that calls a Worker.
type crew struct {
	worker Worker
	jobs   map[contract.Unit]*job
	events chan event
	// ended is closed when no event is received any longer.
	ended chan struct{}
}

// job is the work on one virtual replica: a Worker that runs, or one that waits to run again.
type job struct {
	contract.Work

	replica Replica
	// cancel cancels the Worker, or is nil while none runs.
	cancel   context.CancelFunc
	stopping bool
	started  time.Time
	backoff  time.Duration
}

// event is an event of a job.
type event struct {
	unit contract.Unit
	job  *job
	what eventKind
	err  error
}

type eventKind int

const (
	isReady eventKind = iota
	returned
	retryDue
)

func newCrew(w Worker) *crew {
	return &crew{worker: w, jobs: map[contract.Unit]*job{}, events: make(chan event), ended: make(chan struct{})}
}

// work returns the state of all jobs.
func (c *crew) work() map[contract.Unit]contract.Work {
	all := make(map[contract.Unit]contract.Work, len(c.jobs))
	for u, j := range c.jobs {
		all[u] = j.Work
	}
	return all
}

func (c *crew) send(e event) {
	select {
	case c.events <- e:
	case <-c.ended:
	}
}

// follow implements team.
func (c *crew) follow(ctx context.Context, of *contract.Contract) {
	stop, start := contract.Apply(of, c.work())
	for _, u := range stop {
		c.stop(u)
	}
	// A job that was waiting to run again is gone at once, and its unit may be listed with another
	// epoch.
	if len(stop) > 0 {
		_, start = contract.Apply(of, c.work())
	}
	for _, u := range start {
		e := of.Entry(u.UID)
		epoch, _ := e.Lists(u.Index)
		c.start(ctx, u, Replica{Resource: e.Reference, Index: u.Index, Of: e.Of, Epoch: epoch, Payload: e.Payload})
	}
}

// extend implements team. The loop that uses the crew keeps the deadline.
func (c *crew) extend(context.Context, time.Duration) {}

func (c *crew) next() <-chan event { return c.events }

func (c *crew) close() { close(c.ended) }

// start starts a Worker. The virtual replica must have no job.
func (c *crew) start(ctx context.Context, u contract.Unit, r Replica) {
	j := &job{Work: contract.Work{Epoch: r.Epoch}, replica: r}
	c.jobs[u] = j
	c.run(ctx, u, j)
}

// run calls the Worker. The context has the values of ctx, and stop ends it.
func (c *crew) run(ctx context.Context, u contract.Unit, j *job) {
	ctx, j.cancel = context.WithCancel(context.WithoutCancel(ctx))
	j.started = time.Now()
	go func() {
		err := c.worker.Work(ctx, j.replica, func() { c.send(event{unit: u, job: j, what: isReady}) })
		c.send(event{unit: u, job: j, what: returned, err: err})
	}()
}

// stop ends a job. The job remains until its Worker has returned.
func (c *crew) stop(u contract.Unit) {
	j := c.jobs[u]
	if j.cancel == nil {
		delete(c.jobs, u)
		return
	}
	j.stopping, j.Working = true, false
	j.cancel()
}

// stopAll implements team.
func (c *crew) stopAll(context.Context) {
	for u := range c.jobs {
		c.stop(u)
	}
}

// handle processes an event.
func (c *crew) handle(ctx context.Context, e event) {
	j := e.job
	if c.jobs[e.unit] != j {
		return // of a job that was stopped while no Worker ran
	}
	switch e.what {
	case isReady:
		j.Working, j.Failure = !j.stopping && j.cancel != nil, ""
	case returned:
		j.cancel()
		j.cancel, j.Working = nil, false
		if j.stopping {
			delete(c.jobs, e.unit)
			return
		}
		c.fail(e.unit, j, e.err)
	case retryDue:
		c.run(ctx, e.unit, j)
	}
}

// fail records a failure, and schedules the next call of the Worker.
func (c *crew) fail(u contract.Unit, j *job, err error) {
	j.Failure = "ended by itself"
	if err != nil {
		j.Failure = cmp.Or(err.Error(), j.Failure)
	}
	j.Failure = j.Failure[:min(len(j.Failure), maxFailure)]
	if time.Since(j.started) >= maxBackoff {
		j.backoff = 0
	}
	j.backoff = min(max(2*j.backoff, minBackoff), maxBackoff)
	time.AfterFunc(j.backoff, func() { c.send(event{unit: u, job: j, what: retryDue}) })
}
