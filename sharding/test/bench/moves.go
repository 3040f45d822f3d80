package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shardSeconds is the Lease duration of the shard that dies, which is the default of shards.
const shardSeconds = 15

// figure is the cost of moving many objects.
type figure struct {
	objects int
	took    time.Duration
	writes  float64
	// lists is the number of pages of children that were listed.
	lists float64
	cpu   cpu
}

func (f figure) writesEach() float64 { return f.writes / float64(f.objects) }

// median returns the figure with the median time.
func median(all []figure) figure {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b figure) int { return cmp.Compare(a.took, b.took) })
	return sorted[len(sorted)/2]
}

// moves lets shards join and leave in turn, and a bare client perform the same number of writes.
func (b *bench) moves(ctx context.Context) error {
	if b.rounds == 0 {
		return nil
	}
	var joined, released, bare []figure
	for round := range b.rounds {
		name := fmt.Sprintf("web-%d", round+1)
		f, err := b.rebalance(ctx, name, leaseSeconds)
		if err != nil {
			return err
		}
		joined = append(joined, f)
		if f, err = b.release(ctx, name); err != nil {
			return err
		}
		released = append(released, f)
		if f, err = b.bare(ctx, joined[round]); err != nil {
			return err
		}
		bare = append(bare, f)
	}
	for i, f := range joined {
		b.printResult(fmt.Sprintf("round %d, s: join, release, bare client", i+1), "%.1f, %.1f, %.1f", f.took.Seconds(), released[i].took.Seconds(), bare[i].took.Seconds())
	}
	b.printMoves("a second shard joins", median(joined))
	b.printMoves("a shard releases its Lease", median(released))
	b.printMoves("as many writes by a bare client as for the join", median(bare))
	b.printResult("join to bare client, ratio of the times", "%.2f", median(joined).took.Seconds()/median(bare).took.Seconds())
	return b.used("after the moves")
}

func (b *bench) printMoves(what string, f figure) {
	b.printResult(what+": objects, s, writes for each", "%d, %.1f, %.2f", f.objects, f.took.Seconds(), f.writesEach())
	if b.children > 0 {
		b.printResult(what+": pages of 500 children listed", "%.0f", f.lists)
	}
	b.printResult(what+": CPU for each object, ms: API server, etcd, sharder, shards and clients", "%s", f.cpu.per(f.objects))
}

// measure returns the cost of moving objects.
func (b *bench) measure(ctx context.Context, objects int, move func() error) (figure, error) {
	before, err := b.requests(ctx)
	if err != nil {
		return figure{}, err
	}
	spent, err := b.spent()
	if err != nil {
		return figure{}, err
	}
	begin := time.Now()
	if err := move(); err != nil {
		return figure{}, err
	}
	took := time.Since(begin)
	now, err := b.spent()
	if err != nil {
		return figure{}, err
	}
	after, err := b.requests(ctx)
	return figure{
		objects: objects, took: took, writes: writes(after) - writes(before), lists: after["LIST configmaps"] - before["LIST configmaps"], cpu: now.since(spent),
	}, err
}

// rebalance lets a second shard join and waits until it has its share.
func (b *bench) rebalance(ctx context.Context, name string, seconds int32) (figure, error) {
	stop := b.acknowledge(ctx, "web-0")
	defer stop()
	f, err := b.measure(ctx, 0, func() error {
		return errors.Join(b.join(ctx, name, seconds), b.untilAt(ctx, name, true))
	})
	if err != nil {
		return f, err
	}
	f.objects = b.tally.count(name)
	return f, b.until(ctx, isBalanced)
}

// release lets a shard release its Lease and waits until it has no objects left.
func (b *bench) release(ctx context.Context, name string) (figure, error) {
	n := b.tally.count(name)
	f, err := b.measure(ctx, n, func() error {
		return errors.Join(b.patchLease(ctx, name, `{"spec":{"holderIdentity":""}}`), b.untilAt(ctx, name, false))
	})
	if err != nil {
		return f, err
	}
	return f, b.until(ctx, isBalanced)
}

func (b *bench) patchLease(ctx context.Context, name, patch string) error {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: selected, Name: name}}
	return b.client.Patch(ctx, l, client.RawPatch(client.Merge.Type(), []byte(patch)))
}

// bare performs as many writes of the same size as a move, without any reads. Its labels differ
// from the ring's.
func (b *bench) bare(ctx context.Context, of figure) (figure, error) {
	const shard, drain = "shard.bare.example.com/bench", "drain.bare.example.com/bench"
	steps := []string{`"` + drain + `":"web-0"`, `"` + shard + `":null`, `"` + shard + `":"web-0","` + drain + `":null`}
	writes := int(of.writesEach() + 0.5) // excluding refused writes
	return b.measure(ctx, of.objects, func() error {
		return b.each(ctx, of.objects, func(ctx context.Context, i int) error {
			for n := range writes {
				if err := b.patch(ctx, fmt.Sprintf("s-%d", i), `{"metadata":{"labels":{`+steps[n%len(steps)]+`}}}`); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// death lets a shard join, renew its Lease as shards do, and die without a release.
func (b *bench) death(ctx context.Context) error {
	if !b.kill {
		return nil
	}
	const name = "web-killed"
	stop := b.renew(ctx, name)
	defer stop()
	if _, err := b.rebalance(ctx, name, shardSeconds); err != nil {
		return err
	}
	n := b.tally.count(name)
	var taken time.Time
	begin := time.Now()
	f, err := b.measure(ctx, n, func() error {
		stop()
		begin = time.Now()
		if err := b.untilTakenOver(ctx, name); err != nil {
			return err
		}
		taken = time.Now()
		return b.untilAt(ctx, name, false)
	})
	if err != nil {
		return err
	}
	b.printResult("a shard is killed: objects, s until it is found dead, s from then until the last object is assigned, writes for each", "%d, %.1f, %.1f, %.2f",
		n, taken.Sub(begin).Seconds(), time.Since(taken).Seconds(), f.writesEach())
	return nil
}

// renew renews the Lease of a shard immediately and then every third of its duration, as shards do,
// until the returned function is called.
func (b *bench) renew(ctx context.Context, name string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			now := metav1.NowMicro().UTC().Format(metav1.RFC3339Micro)
			_ = b.patchLease(ctx, name, `{"spec":{"renewTime":"`+now+`"}}`) // no Lease exists before it joins
		}, shardSeconds*time.Second/3)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// untilTakenOver waits until the sharder has taken over the Lease of a shard.
func (b *bench) untilTakenOver(ctx context.Context, name string) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		l := &coordinationv1.Lease{}
		err := b.client.Get(ctx, client.ObjectKey{Namespace: selected, Name: name}, l)
		return err == nil && *l.Spec.HolderIdentity != name, err
	})
}
