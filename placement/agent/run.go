package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/internal/boottime"
)

const (
	// releaseTimeout bounds the release of the Lease. A Lease that is not released is taken over
	// after twice its duration.
	releaseTimeout = 10 * time.Second
	// maxAck is the size in bytes from which an acknowledgement does without the texts of failures:
	// all annotations of an object have at most 256 KiB.
	maxAck = 128 << 10
)

// agent is the part of Run that outlives an incarnation.
type agent struct {
	Options

	worker     Worker
	plane      *dataPlane           // does the work in place of worker, unless it is nil
	now        func() time.Duration // the time by package boottime
	leases     coordinationv1client.LeasesGetter
	configMaps corev1client.ConfigMapsGetter
}

// Run keeps the Lease, follows the contract and runs Workers until ctx ends. It then stops all
// Workers, releases the Lease and returns nil, also if it has lost the Lease or has not joined the
// pool. If the Lease is lost, Run stops all Workers and joins the pool again; with [Keep], a Lease
// that was not renewed in time is not lost. Run returns an error if an option is invalid or the
// Lease could not be released.
func Run(ctx context.Context, cfg *rest.Config, o Options, w Worker) error {
	a, err := newAgent(cfg, o)
	if err != nil {
		return err
	}
	a.worker = w
	return a.run(ctx)
}

// newAgent returns an agent without anything that does its work.
func newAgent(cfg *rest.Config, o Options) (*agent, error) {
	o, err := o.completed()
	if err != nil {
		return nil, err
	}
	leases, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	configMaps, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cfg.Host, err)
	}
	return &agent{Options: o, now: boottime.Now, leases: leases, configMaps: configMaps}, nil
}

// team returns what does the work of an incarnation.
func (a *agent) team() team {
	if a.plane != nil {
		return a.plane
	}
	return newCrew(a.worker)
}

// idle reports whether nothing runs of what an earlier process of this pod has started. It must not
// be called while an incarnation works.
func (a *agent) idle(ctx context.Context) bool { return a.plane == nil || a.plane.idle(ctx) }

// run is Run with clients.
func (a *agent) run(ctx context.Context) error {
	log, reason := logr.FromContextOrDiscard(ctx), ""
	for ctx.Err() == nil {
		k, last, sent, err := a.join(ctx)
		if err != nil {
			if reason != err.Error() {
				reason = err.Error()
				log.Info("Could not join the pool, retrying", "error", reason)
			}
			pause(ctx, a.retryPeriod())
			continue
		}
		reason = ""
		log.Info("Joined the pool", "pool", a.Pool, "pod", a.Pod, "incarnation", k.incarnation)
		a.Renewed(sent + RenewDeadline(a.LeaseDuration))
		t := &term{agent: a, keeper: k, last: last, team: a.team(), texts: make(chan string), deadline: time.NewTimer(0)}
		t.extend(ctx, sent)
		t.run(ctx)
	}
	return a.leave(ctx)
}

// term is the time of one incarnation in this process. Its fields belong to the goroutine of run.
type term struct {
	*agent

	keeper *keeper
	team   team
	texts  chan string // versions of the contract

	contract contract.Contract
	digest   string
	last     int64     // the generation for contract.Accepts
	followed time.Time // since when it follows the contract
	acked    int64     // the generation that it has acknowledged
	ack      string

	until    time.Duration // Workers may run until then
	deadline *time.Timer
	leaving  bool // it ends because Run does
	lost     bool // it ends because it has lost the Lease
}

// extend lets Workers run until the deadline of a renewal that was sent at that time.
func (t *term) extend(ctx context.Context, sent time.Duration) {
	t.team.extend(ctx, sent)
	t.until = sent + RenewDeadline(t.LeaseDuration)
	t.deadline.Reset(boottime.Wait(t.until, t.now()))
}

// isOver reports whether Workers may not run any longer. If they may, it sets the timer again.
func (t *term) isOver() bool {
	wait := boottime.Wait(t.until, t.now())
	if wait > 0 {
		t.deadline.Reset(wait)
	}
	return wait == 0
}

// run works until ctx ends or the Lease is lost, and all Workers have returned.
func (t *term) run(ctx context.Context) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	var loops sync.WaitGroup
	defer func() {
		cancel()
		loops.Wait()
		t.team.close()
	}()
	loops.Go(func() { ended <- t.keeper.run(within) })
	loops.Go(func() { t.follow(within, t.texts) })
	leave, waited := ctx.Done(), time.NewTimer(0)
	defer waited.Stop()
	for {
		select {
		case <-leave:
			leave, t.leaving = nil, true
		case err := <-ended:
			t.lose(ctx, err)
		case <-t.deadline.C:
			if t.isOver() {
				t.expire(ctx, cancel)
			}
		case sent := <-t.keeper.renewed:
			t.extend(ctx, sent)
		case text := <-t.texts:
			if t.read(text) {
				waited.Reset(stopTime)
			}
		case e := <-t.team.next():
			t.team.handle(ctx, e)
		case <-waited.C:
		}
		if done := t.step(ctx); done {
			return
		}
	}
}

// expire ends the term, and its loops, because the Lease was not renewed in time. With Keep, it does
// not: the keeper goes on trying to renew the Lease, and reads whose it is.
func (t *term) expire(ctx context.Context, cancel context.CancelFunc) {
	if t.OnLostLease == Keep {
		logr.FromContextOrDiscard(ctx).Info("The Lease was not renewed in time, all work goes on", "count", len(t.team.work()))
		return
	}
	t.lose(ctx, errLate)
	cancel()
}

// lose ends the term. The reason is nil if it ends already.
func (t *term) lose(ctx context.Context, reason error) {
	if t.lost || reason == nil {
		return
	}
	t.lost = true
	logr.FromContextOrDiscard(ctx).Info("Lost the Lease, stopping all work", "reason", reason.Error(), "count", len(t.team.work()))
}

// read processes a version of the contract, and reports whether the term follows it from now on.
func (t *term) read(text string) bool {
	c, err := contract.DecodeContract([]byte(text))
	if err != nil || !contract.Accepts(t.keeper.incarnation, t.last, &c) {
		return false // the controller replaces a malformed contract
	}
	t.contract, t.digest, t.last, t.followed = c, contract.Digest([]byte(text)), c.Generation, time.Now()
	return true
}

// step stops and starts what has to stop and start, and acknowledges. It reports whether the term is
// over.
func (t *term) step(ctx context.Context) (done bool) {
	if t.lost || t.leaving {
		t.team.stopAll(ctx)
		return len(t.team.work()) == 0
	}
	t.team.follow(ctx, &t.contract)
	t.acknowledge()
	return false
}

// acknowledge acknowledges the contract when everything is done or has taken too long, and after
// that whenever the acknowledgement changes.
func (t *term) acknowledge() {
	if t.contract.Incarnation == "" {
		return
	}
	a, done := contract.Acknowledge(&t.contract, t.digest, t.team.work())
	if !done && t.acked != a.Generation && time.Since(t.followed) < stopTime {
		return
	}
	text := a.Encode()
	if len(text) > maxAck {
		for uid := range a.Failing {
			a.Failing[uid] = "failing"
		}
		text = a.Encode()
	}
	t.acked = a.Generation
	if string(text) != t.ack {
		t.ack = string(text)
		t.keeper.acknowledge(t.ack)
	}
}
