package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"
)

// checkPeriod is how often a check that waits is repeated.
const checkPeriod = 200 * time.Millisecond

// state is what the log has about a partition so far.
type state struct {
	added, next int
	done        int
	owner       record            // the last one
	seen        map[string]record // the owners of this epoch
	owners      int
	refused     int
	faults      []string
}

// check returns the state of each partition at the end of the log, with all that is wrong.
func check(all []record) map[key]*state {
	states := map[key]*state{}
	for _, r := range all {
		k := key{r.Queue, r.Partition}
		if states[k] == nil {
			states[k] = &state{seen: map[string]record{}}
		}
		s := states[k]
		switch r.Event {
		case added:
			s.checkAdded(r.Offset)
		case refused:
			s.checkRefused(r)
		case owned:
			s.checkOwner(r)
		case done:
			s.checkOwner(r)
			s.checkOrder(r.Offset)
		default:
			s.fault("the event %q is unknown", r.Event)
		}
	}
	return states
}

// checkAdded checks that the log has each message once.
func (s *state) checkAdded(offset int) {
	if offset != s.added {
		s.fault("offset %d is added, and the next one is %d", offset, s.added)
	}
	s.added = max(s.added, offset+1)
}

// checkRefused checks that only epochs that are lower than that of the owner are refused.
func (s *state) checkRefused(r record) {
	s.refused++
	if r.Epoch >= r.Highest || r.Highest != s.owner.Epoch {
		s.fault("epoch %d of %s is refused for epoch %d, and the owner, %s, has epoch %d", r.Epoch, r.Worker, r.Highest, s.owner.Worker, s.owner.Epoch)
	}
}

// checkOwner checks that each owner follows the one before it: its epoch is higher, or it is a
// process that the agent has started again, after the one before it ended.
func (s *state) checkOwner(r record) {
	_, isFormer := s.seen[r.Worker]
	switch {
	case r.Epoch == s.owner.Epoch && r.Worker == s.owner.Worker:
		return
	case r.Epoch < s.owner.Epoch:
		s.fault("epoch %d of %s is interleaved with epoch %d of %s, at offset %d", r.Epoch, r.Worker, s.owner.Epoch, s.owner.Worker, r.Offset)
		return
	case r.Epoch == s.owner.Epoch && isFormer:
		s.fault("%s and %s are interleaved, both with epoch %d, at offset %d", r.Worker, s.owner.Worker, r.Epoch, r.Offset)
	case r.Epoch > s.owner.Epoch:
		clear(s.seen)
	}
	s.owner, s.seen[r.Worker] = r, r
	s.owners++
}

// checkOrder checks that the offsets of the messages that are done have neither gap nor repetition.
func (s *state) checkOrder(offset int) {
	switch {
	case offset >= s.added:
		s.fault("offset %d is done, and was never added", offset)
	case offset < s.next:
		s.fault("offset %d is done after offset %d", offset, s.next-1)
		return
	case offset > s.next:
		s.fault("offset %d is missing: offset %d is done after offset %d", s.next, offset, s.next-1)
	}
	s.done++
	s.next = offset + 1
}

func (s *state) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// left is the number of messages that are not done yet.
func (s *state) left() int { return max(0, s.added-s.next) }

// show prints a line for each partition, and returns an error if something is wrong with one.
func show(w io.Writer, states map[key]*state) error {
	order := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.partition, b.partition))
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "QUEUE\tPARTITION\tDONE\tLEFT\tOWNERS\tREFUSED\tOWNER") // Flush returns the errors
	var errs []error
	messages := 0
	for _, k := range slices.SortedFunc(maps.Keys(states), order) {
		s := states[k]
		messages += s.done
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", k.queue, k.partition, s.done, s.left(), s.owners, s.refused, s.owner.Worker)
		for _, fault := range s.faults {
			errs = append(errs, fmt.Errorf("partition %d of %s: %s", k.partition, k.queue, fault))
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if len(errs) == 0 {
		_, _ = fmt.Fprintf(w, "%d messages are done, each once and in order, and no two owners took turns\n", messages)
	}
	return errors.Join(errs...)
}

// awaitCheck checks the log of a queue, which must have messages. With wait, it fails unless all of
// them are done in time.
func awaitCheck(ctx context.Context, c *client, wait time.Duration, stdout io.Writer) error {
	for begin := time.Now(); ; {
		text, err := c.do(ctx, http.MethodGet, "/log", nil)
		if err != nil {
			return err
		}
		all, err := readRecords(bytes.NewReader(text))
		if err != nil {
			return err
		}
		states, messages, left := check(all), 0, 0
		for _, s := range states {
			messages += s.added
			left += s.left()
		}
		switch isLate := time.Since(begin) >= wait; {
		case messages > 0 && (left == 0 || wait == 0):
			return show(stdout, states)
		case messages == 0 && isLate:
			return errors.Join(show(stdout, states), errors.New("no messages were added"))
		case isLate:
			return errors.Join(show(stdout, states), fmt.Errorf("%d messages are not done after %s", left, wait))
		}
		if !pause(ctx, checkPeriod) {
			return ctx.Err() //nolint:wrapcheck // it was interrupted
		}
	}
}
