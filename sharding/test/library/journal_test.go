package library

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// entry is a line of the example's journal.
type entry struct {
	Event, Shard, Kind, Namespace, Name, UID, ResourceVersion string

	Ns int64
}

// readJournal returns the entries of a journal, or none if the shard has not started.
func readJournal(t require.TestingT, path string) []entry {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var all []entry
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the process may be writing the rest of the line
			return all
		}
		require.NoError(t, err)
		var e entry
		require.NoError(t, json.Unmarshal(line, &e), "%s", line)
		all = append(all, e)
	}
}

// monotonic returns the time by the clock of the journals.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// process is one run of a shard, with its journal and the faults that were injected.
type process struct {
	name string
	// ended is when it ended, or 0 if it is still running.
	ended int64
	// frozen lists when it was suspended for longer than its right to act lasts, and resumed.
	frozen []freeze
	log    []entry
}

type freeze struct{ from, to int64 }

// span is a piece of work of one process on one object.
type span struct {
	by       *process
	object   string
	from, to int64
}

// Violations of R32: no object is reconciled twice at the same time.
var (
	errOverlap = errors.New("two shards worked on an object at once")
	errAck     = errors.New("a shard gave an object away while it worked on it")
	errJournal = errors.New("a journal makes no sense")
)

// spans returns the work in a journal. Work in progress when its process was killed or suspended
// for long ended at that time: a suspended process sends nothing when it resumes, which the audit
// log verifies.
func (p *process) spans() ([]span, error) {
	var all []span
	open := map[string]span{}
	for _, e := range p.log {
		s, isOpen := open[e.UID]
		switch {
		case e.Event == "begin" && !isOpen:
			open[e.UID] = span{by: p, object: e.UID, from: e.Ns}
			continue
		case e.Event == "ack" && isOpen:
			return nil, fmt.Errorf("%w: %s, %s", errAck, p.name, e.Name)
		case e.Event == "ack":
			continue
		case e.Event != "end" || !isOpen:
			return nil, fmt.Errorf("%w: %s, %s of %s", errJournal, p.name, e.Event, e.Name)
		}
		delete(open, e.UID)
		s.to = e.Ns
		all = append(all, s)
	}
	for _, s := range open {
		s.to = cmp.Or(p.ended, math.MaxInt64)
		all = append(all, s)
	}
	for i, s := range all {
		for _, f := range p.frozen {
			if s.from <= f.from && f.from < s.to {
				all[i].to = f.from
				s = all[i]
			}
		}
	}
	return all, nil
}

// checkExclusion returns every violation of R32 in the journals of processes, and the number of
// objects that several of them worked on.
func checkExclusion(processes []*process) (spans, moved int, err error) {
	byObject := map[string][]span{}
	var errs []error
	for _, p := range processes {
		own, err := p.spans()
		errs = append(errs, err)
		for _, s := range own {
			byObject[s.object] = append(byObject[s.object], s)
			spans++
		}
	}
	for object, all := range byObject {
		slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		last := all[0]
		isMoved := false
		for _, s := range all[1:] {
			isMoved = isMoved || s.by != last.by
			if s.from < last.to {
				errs = append(errs, fmt.Errorf("%w: %s by %s from %d to %d, and by %s from %d", errOverlap, object, last.by.name, last.from, last.to, s.by.name, s.from))
			}
			if s.to > last.to {
				last = s
			}
		}
		if isMoved {
			moved++
		}
	}
	return spans, moved, errors.Join(errs...)
}

// The check must be able to fail.
func TestCheckFindsBreaches(t *testing.T) {
	t.Parallel()
	log := func(events ...entry) []entry { return events }
	on := func(event, uid string, ns int64) entry { return entry{Event: event, UID: uid, Ns: ns} }
	for name, tc := range map[string]struct {
		a, b process
		want error
	}{
		"one after the other":         {process{log: log(on("begin", "x", 1), on("end", "x", 2), on("ack", "x", 3))}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, nil},
		"different objects":           {process{log: log(on("begin", "x", 1), on("end", "x", 9))}, process{log: log(on("begin", "y", 4), on("end", "y", 5))}, nil},
		"at once":                     {process{log: log(on("begin", "x", 1), on("end", "x", 9))}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, errOverlap},
		"in the end":                  {process{log: log(on("begin", "x", 4), on("end", "x", 9))}, process{log: log(on("begin", "x", 1), on("end", "x", 5))}, errOverlap},
		"it is running":               {process{log: log(on("begin", "x", 1))}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, errOverlap},
		"it was killed":               {process{log: log(on("begin", "x", 1)), ended: 3}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, nil},
		"it was killed later":         {process{log: log(on("begin", "x", 1)), ended: 5}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, errOverlap},
		"it was frozen":               {process{log: log(on("begin", "x", 1), on("end", "x", 9)), frozen: []freeze{{3, 8}}}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, nil},
		"it was frozen later":         {process{log: log(on("begin", "x", 1), on("end", "x", 9)), frozen: []freeze{{6, 8}}}, process{log: log(on("begin", "x", 4), on("end", "x", 5))}, errOverlap},
		"it began afterwards":         {process{log: log(on("begin", "x", 8), on("end", "x", 9)), frozen: []freeze{{6, 7}}}, process{log: log(on("begin", "x", 4), on("end", "x", 10))}, errOverlap},
		"an ack at work":              {process{log: log(on("begin", "x", 1), on("ack", "x", 2), on("end", "x", 3))}, process{}, errAck},
		"an end without a beginning":  {process{log: log(on("end", "x", 1))}, process{}, errJournal},
		"a beginning after beginning": {process{log: log(on("begin", "x", 1), on("begin", "x", 2))}, process{}, errJournal},
	} {
		_, _, err := checkExclusion([]*process{&tc.a, &tc.b})
		if tc.want == nil {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, tc.want, name)
		}
	}
}
