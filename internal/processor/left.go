package processor

import (
	"context"
	"slices"
	"sync"
	"time"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
)

// left finds the transactions that an earlier history has left in the queue: they were listed
// before the revision of all Nodes was read, and theirs is later. Those that the watch delivers
// after the list were recorded in this history. So each list costs one read.
type left struct {
	mu   sync.Mutex
	now  revision.Revision
	read time.Time // when now was requested
}

// first returns the pending transactions of a node with those of an earlier history first, and
// marked.
func (l *left) first(ctx context.Context, p *Processor, pending []queue.Queued) ([]queue.Queued, error) {
	now, read, err := l.present(ctx, p)
	if err != nil || now.IsZero() {
		return pending, err
	}
	isLeft := func(t queue.Queued) bool { return t.Revision.After(now) && t.Seen.Before(read) }
	if !slices.ContainsFunc(pending, isLeft) {
		return pending, nil
	}
	var before, since []queue.Queued
	for _, t := range pending {
		if t.Ahead = isLeft(t); t.Ahead {
			before = append(before, t)
		} else {
			since = append(since, t)
		}
	}
	return append(before, since...), nil
}

// present returns a revision of all Nodes that was read after the latest list of the queue, and
// when.
func (l *left) present(ctx context.Context, p *Processor) (now revision.Revision, read time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.read.IsZero() && !p.Index.Listed().After(l.read) {
		return l.now, l.read, nil
	}
	at := time.Now()
	if now, err = p.Applier.Now(ctx); err != nil {
		return now, at, err
	}
	l.now, l.read = now, at
	return now, at, nil
}
