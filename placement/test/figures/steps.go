package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/queues"
)

const duration = agent.DefaultLeaseDuration

// distribute measures how long it takes until all work is distributed for the first time, beside the
// bare client, in turns.
func (b *bench) distribute(ctx context.Context) error {
	var ours, ratios []float64
	writes, bareWrites := 0, 0
	for round := range b.rounds {
		if round > 0 {
			if err := b.forget(ctx); err != nil {
				return err
			}
		}
		if err := b.createQueues(ctx, b.resources, b.partitions); err != nil {
			return err
		}
		took, requests, err := b.first(ctx, round)
		if err != nil {
			return err
		}
		writes = max(writes, requests.writes())
		r, err := b.newBare(ctx)
		if err != nil {
			return err
		}
		bareTook, n, err := r.run(ctx)
		if err != nil {
			return err
		}
		if b.bare = r; round < b.rounds-1 { // the last one stays for other figures
			if err := r.clean(ctx); err != nil {
				return err
			}
		}
		bareWrites = n
		ours, ratios = append(ours, took.Seconds()), append(ratios, took.Seconds()/bareTook.Seconds())
		if round == b.rounds-1 {
			b.print("its requests, without renewals", "", "%s", requests)
		}
	}
	what := fmt.Sprintf("%d × %d on %d agents", b.resources, b.partitions, b.agents)
	b.print(what+": writes without renewals, at most; bare client", "≤ 2,800", "%d; %d", writes, bareWrites)
	b.print("time until Ready ÷ bare client, median of rounds", "≤ 2.0", "%.2f (%s), %s s", median(slices.Clone(ratios)), list(ratios), list(ours))
	return nil
}

// first starts the controller, and returns how long it takes until all Queues are Ready.
func (b *bench) first(ctx context.Context, round int) (time.Duration, requests, error) {
	before, err := b.requests(ctx)
	if err != nil {
		return 0, nil, err
	}
	stop, err := b.profile(round)
	if err != nil {
		return 0, nil, err
	}
	began := time.Now()
	if err := b.startController(""); err != nil {
		return 0, nil, err
	}
	if err := b.until(ctx, "all is Ready", b.tally.isReady); err != nil {
		return 0, nil, err
	}
	took := time.Since(began)
	if err := stop(); err != nil {
		return 0, nil, err
	}
	if err := b.rest(ctx); err != nil {
		return 0, nil, err
	}
	after, err := b.requests(ctx)
	return took, after.since(before), err
}

// profile begins a CPU profile of this process if requested.
func (b *bench) profile(round int) (stop func() error, err error) {
	if b.profiles == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(b.profiles, fmt.Sprintf("round-%d.pprof", round)))
	if err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, pprof.StartCPUProfile(file)
}

// forget deletes the Queues, and everything that the controller has written.
func (b *bench) forget(ctx context.Context) error {
	if err := b.deleteQueues(ctx, b.resources); err != nil {
		return err
	}
	if err := b.until(ctx, "all work has stopped", func() bool { return b.tally.queues() == 0 && b.clock.works("") == 0 }); err != nil {
		return err
	}
	if err := b.rest(ctx); err != nil {
		return err
	}
	if err := b.stopController(); err != nil {
		return err
	}
	b.clock.reset()
	return b.client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace), client.HasLabels{contract.PoolLabel})
}

// create measures how long it takes until a new Queue is worked on.
func (b *bench) create(ctx context.Context) error {
	var took, bare []time.Duration
	for i := range b.samples {
		began := time.Now()
		if err := b.client.Create(ctx, queues.New(bareNamespace, fmt.Sprintf("new-%d", i), 3)); err != nil {
			return err
		}
		if _, err := b.bare.chain(ctx, 0, 1, 3); err != nil {
			return err
		}
		bare = append(bare, time.Since(began))
		q := queues.New(namespace, fmt.Sprintf("new-%d", i), 3)
		began = time.Now()
		if err := b.client.Create(ctx, q); err != nil {
			return err
		}
		uid := string(q.GetUID())
		if err := b.until(ctx, "a new Queue is worked on", func() bool { return b.clock.worksOn(uid) == 3 }); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := b.until(ctx, "a new Queue is Ready", b.tally.isReady); err != nil {
			return err
		}
		if err := b.client.Delete(ctx, q); err != nil {
			return err
		}
		if err := b.until(ctx, "a Queue is not worked on any longer", func() bool { return b.clock.worksOn(uid) == 0 }); err != nil {
			return err
		}
	}
	slices.Sort(took)
	slices.Sort(bare)
	b.print("a new Queue of 3, until it runs: p50; p99", "120; 400 ms", "%d; %d ms; bare client: %d; %d ms",
		ms(percentile(took, 50)), ms(percentile(took, 99)), ms(percentile(bare, 50)), ms(percentile(bare, 99)))
	return b.rest(ctx)
}

// measured is what a change has cost.
type measured struct {
	took          time.Duration // until everything works
	starts, moves int
	longest       time.Duration // interruption
	requests      requests
}

// measure makes a change, waits until all virtual replicas are worked on and the pool is at rest, and
// returns what it has cost.
func (b *bench) measure(ctx context.Context, change func() error) (m measured, err error) {
	all := b.clock.works("")
	before, err := b.requests(ctx)
	if err != nil {
		return m, err
	}
	b.clock.reset()
	began := time.Now()
	if err := change(); err != nil {
		return m, err
	}
	if err := b.until(ctx, "all is worked on", func() bool { return b.clock.works("") == all }); err != nil {
		return m, err
	}
	if err := b.rest(ctx); err != nil {
		return m, err
	}
	after, err := b.requests(ctx)
	m.took = b.clock.last().Sub(began)
	m.starts, m.moves, m.longest = b.clock.started()
	m.requests = after.since(before)
	return m, err
}

// leave ends a pod in order, and join starts one more.
func (b *bench) leave(ctx context.Context) error {
	p := b.pods[b.agents-1]
	has := b.clock.works(p.name)
	m, err := b.measure(ctx, func() error {
		p.cancel()
		<-p.done
		return nil
	})
	if err != nil {
		return err
	}
	least, err := b.bare.chain(ctx, 1, has, has)
	if err != nil {
		return err
	}
	b.print(fmt.Sprintf("SIGTERM of a pod with %d: longest interruption; writes", has), "≤ 400 ms; ≤ 250", "%d ms; %d (%s); bare client: %d ms", ms(m.longest), m.requests.writes(), m.requests, ms(least))
	return nil
}

func (b *bench) join(ctx context.Context) error {
	m, err := b.measure(ctx, func() (err error) {
		last := b.agents - 1
		if b.pods[last], err = b.start(ctx, last); err != nil {
			return err
		}
		return b.until(ctx, "the new pod works", func() bool { return b.clock.works(b.pods[last].name) > 0 })
	})
	if err != nil {
		return err
	}
	const together = 10 // moves
	least, err := b.bare.chain(ctx, together, together, 1)
	if err != nil {
		return err
	}
	b.print("one pod more: moves; the bound; longest interruption", "the bound; ≤ 250 ms", "%d; %d; %d ms; bare client: %d ms", m.moves, bound(b.clock.works(""), b.agents-1), ms(m.longest), ms(least))
	return nil
}

// bound returns the least number of moves after which the loads of all pods differ by one at most,
// when a pod joins n others that have an even load.
func bound(load, n int) (moves int) {
	for moves < (load-moves+n-1)/n-1 {
		moves++
	}
	return moves
}

// kill cuts a pod off and ends its work at once, as kill -9 of a container does.
func (b *bench) kill(ctx context.Context) error {
	last := b.agents - 1
	p := b.pods[last]
	m, err := b.measure(ctx, func() error {
		p.cut()
		p.cancel()
		return b.until(ctx, "the work of the pod has stopped", func() bool { return b.clock.works(p.name) == 0 })
	})
	if err != nil {
		return err
	}
	b.print("kill -9 for good: all is elsewhere after", "≤ 35 s: 2D + 5 s", "%.1f s", m.took.Seconds())
	if b.pods[last], err = b.start(ctx, last); err != nil { // as at the beginning
		return err
	}
	if err := b.until(ctx, "the new pod works", func() bool { return b.clock.works(p.name) > 0 }); err != nil {
		return err
	}
	return b.rest(ctx)
}

// lead replaces the leader, and observes the calm pool for a lease duration.
func (b *bench) lead(ctx context.Context) error {
	m, err := b.measure(ctx, func() error { return errors.Join(b.replaceController(ctx, ""), b.settle(ctx)) })
	if err != nil {
		return err
	}
	b.print("a new leader, and a calm pool for 15 s: starts; writes but renewals; moves", "0; 0; 0", "%d; %d; %d", m.starts, m.requests.writes(), m.moves)
	return nil
}

// replaceController kills the controller and starts another one, and returns when that leads.
func (b *bench) replaceController(ctx context.Context, more string) error {
	if err := b.controller.Kill(); err != nil {
		return err
	}
	if err := b.startController(more); err != nil {
		return err
	}
	return b.until(ctx, "the controller leads", func() bool { return b.isLeading(ctx) })
}

// settle waits for a lease duration, after which a leader knows which pods renew their Leases.
func (*bench) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// roll replaces all pods of a StatefulSet, ten at a time.
func (b *bench) roll(ctx context.Context) error {
	if err := errors.Join(b.replaceController(ctx, withSet), b.settle(ctx)); err != nil {
		return err
	}
	const together = 10
	m, err := b.measure(ctx, func() error {
		for i := 0; i < b.agents; i += together {
			some := b.pods[i:min(i+together, b.agents)]
			for _, p := range some {
				p.cancel()
			}
			for j, p := range some {
				<-p.done
				var err error
				if b.pods[i+j], err = b.start(ctx, i+j); err != nil {
					return err
				}
			}
			if err := b.until(ctx, "the new pods work", func() bool { return b.clock.works("") == b.resources*b.partitions }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.print(fmt.Sprintf("roll of all %d pods within patience: moves; longest interruption", b.agents), "0", "%d; %d ms", m.moves, ms(m.longest))
	return nil
}
