package processor

import (
	"context"
	"sync"
	"time"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
)

// earlier finds the pending transactions of an earlier history: they were listed before the
// revision of all Nodes was read, and theirs is later. Those that the watch delivers after the list
// were recorded in this history. So each list costs one read.
type earlier struct {
	mu   sync.Mutex
	now  revision.Revision
	read time.Time // when now was requested
}

// first returns the pending transactions of a node with those of an earlier history first, and
// marked.
func (e *earlier) first(ctx context.Context, p *Processor, pending []queue.Queued) ([]queue.Queued, error) {
	now, read, err := e.revision(ctx, p)
	if err != nil || now.IsZero() {
		return pending, err
	}
	return queue.EarlierFirst(pending, func(t queue.Queued) bool { return t.Revision.After(now) && t.Seen.Before(read) }), nil
}

// revision returns a revision of all Nodes that was read after the latest list of the queue, and
// when.
func (e *earlier) revision(ctx context.Context, p *Processor) (now revision.Revision, read time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.read.IsZero() && !p.Index.Listed().After(e.read) {
		return e.now, e.read, nil
	}
	at := time.Now()
	if now, err = p.Applier.Now(ctx); err != nil {
		return now, at, err
	}
	e.now, e.read = now, at
	return now, at, nil
}
