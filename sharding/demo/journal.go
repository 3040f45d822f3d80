package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// entry is a line of a journal of example-checksum.
type entry struct {
	Event string `json:"event"` // begin, end, ack
	Shard string `json:"shard"`
	Name  string `json:"name"`
	UID   string `json:"uid"`
	NS    int64  `json:"ns"` // of CLOCK_MONOTONIC
}

// span is a time in which a shard reconciled an object.
type span struct {
	shard, name string
	begin, end  int64
}

// monotonic returns the time by CLOCK_MONOTONIC, which all processes of a machine share.
func monotonic() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return now.Nano(), nil
}

// spansOf reads a journal, and returns the times in which each object was reconciled, by uid, in order. Work of a shard that was killed
// ends with the shard.
func spansOf(journal io.Reader, killed map[string]int64) (map[string][]span, error) {
	type work struct{ shard, uid string }
	open, all := map[work]span{}, map[string][]span{}
	lines := bufio.NewScanner(journal)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading a line of the journal (%s): %w", lines.Text(), err)
		}
		key := work{e.Shard, e.UID}
		before, isOpen := open[key]
		switch {
		case e.Event == "begin" && !isOpen:
			open[key] = span{shard: e.Shard, name: e.Name, begin: e.NS}
		case e.Event == "end" && isOpen:
			before.end = e.NS
			all[e.UID] = append(all[e.UID], before)
			delete(open, key)
		case e.Event == "ack" && !isOpen:
		default:
			return nil, fmt.Errorf("%s says %s of %s, and that it is %s", e.Shard, e.Event, e.Name, map[bool]string{true: "at work on it", false: "not"}[isOpen])
		}
	}
	for key, s := range open {
		end, isKilled := killed[key.shard]
		if !isKilled {
			return nil, fmt.Errorf("%s has not ended its work on %s", key.shard, s.name)
		}
		s.end = end
		all[key.uid] = append(all[key.uid], s)
	}
	for _, spans := range all {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	}
	return all, lines.Err()
}

// overlaps returns an error that names an object which two shards reconciled at once.
func overlaps(all map[string][]span) error {
	for _, spans := range all {
		var last span // the one that ends last so far
		for _, s := range spans {
			if s.begin < last.end && s.shard != last.shard {
				return fmt.Errorf("%s was reconciled by %s and %s at once", s.name, last.shard, s.shard)
			}
			if s.end > last.end {
				last = s
			}
		}
	}
	return nil
}

// handed returns how many objects were reconciled by more than one shard, one after the other.
func handed(all map[string][]span) (n int) {
	for _, spans := range all {
		if slices.ContainsFunc(spans, func(s span) bool { return s.shard != spans[0].shard }) {
			n++
		}
	}
	return n
}
