package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/story"
)

const (
	poolPrefix = "pool-"
	poolSize   = 30
	// hands is how many nodes of the pool are deleted and re-created at a time.
	hands = 8
	// enough is how many nodes have their labels again when a processor is killed: it is at work, and far from done.
	enough = 3
)

// killProcessor kills a processor while both are busy.
func killProcessor(ctx context.Context, s *stage) error {
	pool, err := s.fillPool(ctx)
	if err != nil {
		return err
	}
	before := len(s.see.history())
	s.tell(fmt.Sprintf("delete and re-create all %d nodes, %d at a time", poolSize, hands))
	var returned []*corev1.Node
	done := make(chan error, 1)
	go func() {
		var err error
		returned, err = s.recreate(ctx, pool)
		done <- err
	}()
	victim, killedAt, err := s.killBusiest(ctx, before)
	if err := errors.Join(<-done, err); err != nil {
		return err
	}
	if err := s.awaitRestored(ctx, returned...); err != nil {
		return err
	}
	for _, name := range pool {
		if err := s.checkRestored(ctx, name); err != nil {
			return err
		}
	}
	s.tellFinish(before, victim, killedAt)
	return s.crew.start(ctx, "processor") // in place of the dead one, as a Deployment does
}

// fillPool creates the nodes of the pool, waits until they are recorded, and returns their names.
func (s *stage) fillPool(ctx context.Context) ([]string, error) {
	var pool []string
	for i := range poolSize {
		pool = append(pool, fmt.Sprintf("%s%02d", poolPrefix, i+1))
	}
	s.tell(fmt.Sprintf("create nodes %s to %s, each with labels of its own", pool[0], pool[poolSize-1]))
	for i, name := range pool {
		own := map[string]string{"example.com/pool": "batch", "example.com/slot": strconv.Itoa(i + 1), "rack": fmt.Sprintf("r%d", i/4)}
		if err := s.introduce(ctx, name, own); err != nil {
			return nil, err
		}
	}
	if err := s.awaitSettled(ctx, pool...); err != nil {
		return nil, err
	}
	s.out.Say(time.Now(), "record", fmt.Sprintf("%d nodes are recorded", poolSize))
	return pool, nil
}

// recreate deletes nodes and creates them again, several at a time.
func (s *stage) recreate(ctx context.Context, names []string) ([]*corev1.Node, error) {
	returned := make([]*corev1.Node, len(names))
	errs := make([]error, len(names))
	next := make(chan int)
	var wg sync.WaitGroup
	for range hands {
		wg.Go(func() {
			for i := range next {
				if errs[i] = s.remove(ctx, names[i]); errs[i] == nil {
					returned[i], errs[i] = s.bringBack(ctx, names[i])
				}
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	wg.Wait()
	return returned, errors.Join(errs...)
}

// killBusiest waits until the processors are in the middle of their work, and kills the one that holds most locks.
func (s *stage) killBusiest(ctx context.Context, before int) (victim string, at time.Time, err error) {
	err = s.see.until(ctx, func(h history) error {
		h = h[before:]
		held := map[string]int{}
		for _, e := range h.present(locks) {
			held[e.holder()]++
		}
		if len(held) == 0 || len(h.poolRestores()) < enough {
			return errors.New("no processor was seen at work")
		}
		victim = slices.MaxFunc(slices.Sorted(maps.Keys(held)), func(a, b string) int { return cmp.Compare(held[a], held[b]) })
		return nil
	})
	if err != nil {
		return "", at, err
	}
	at = time.Now()
	pid, err := s.crew.Kill(victim)
	if err != nil {
		return victim, at, err
	}
	restored := len(s.see.history()[before:].poolRestores())
	held, err := s.locksOf(ctx, victim)
	if err != nil {
		return victim, at, err
	}
	s.out.Say(at, "demo", fmt.Sprintf("kill -9 %d: %s, after %d of %d nodes have their labels", pid, victim, restored, poolSize))
	s.out.Say(time.Now(), "lock", fmt.Sprintf("%s leaves the locks of %d nodes behind", victim, held))
	if restored == poolSize {
		return victim, at, errors.New("all nodes were restored before the processor was killed")
	}
	return victim, at, nil
}

// poolRestores returns the lives of the nodes of the pool that got their labels back, in that order.
func (h history) poolRestores() []life {
	var restores []life
	for _, l := range h.lives() {
		if l.restored.happened() && l.added.happened() && strings.HasPrefix(l.added.obj.GetName(), poolPrefix) {
			restores = append(restores, l)
		}
	}
	slices.SortFunc(restores, func(a, b life) int { return a.restored.at.Compare(b.restored.at) })
	return restores
}

// locksOf counts the locks that a processor holds.
func (s *stage) locksOf(ctx context.Context, identity string) (int, error) {
	var list coordinationv1.LeaseList
	if err := s.api.List(ctx, &list, client.InNamespace(transactionNamespace)); err != nil {
		return 0, fmt.Errorf("listing the locks: %w", err)
	}
	count := 0
	for i := range list.Items {
		if (event{obj: &list.Items[i]}).holder() == identity {
			count++
		}
	}
	return count, nil
}

// tellFinish prints how the other processor finished the work of the victim.
func (s *stage) tellFinish(before int, victim string, killedAt time.Time) {
	h := s.see.history()[before:]
	holders := map[string]string{} // of every lock
	takeovers := 0
	for _, e := range h {
		if e.kind != locks {
			continue
		}
		if e.typ == watch.Modified && holders[e.obj.GetName()] == victim && e.holder() != victim {
			takeovers++
			if takeovers == 1 {
				s.out.Say(e.at, "lock", fmt.Sprintf("%s takes over the first of these locks, %s after the kill", e.holder(), story.InSeconds(e.at.Sub(killedAt))))
			}
		}
		holders[e.obj.GetName()] = e.holder()
	}
	restores := h.poolRestores()
	late := 0
	for _, l := range restores {
		if l.restored.at.After(killedAt) {
			late++
		}
	}
	last := restores[len(restores)-1]
	s.out.Say(last.restored.at, "node", fmt.Sprintf("all %d nodes have their labels, %s after the kill (%d restored since)",
		len(restores), story.InSeconds(last.restored.at.Sub(killedAt)), late))
}
