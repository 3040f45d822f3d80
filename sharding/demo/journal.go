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

// monotonic returns the time by CLOCK_MONOTONIC, which all processes of a machine share.
func monotonic() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return now.Nano(), nil
}

// tally is what a journal has.
type tally struct{ reconciles, objects, handed int }

// assess counts the work in a journal. It returns an error if two shards worked on an object at
// once: work ends when the shard wrote so, or was killed.
func assess(journal io.Reader, killed map[string]int64) (t tally, err error) {
	var all []entry
	lines := bufio.NewScanner(journal)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return t, fmt.Errorf("reading a line of the journal (%s): %w", lines.Text(), err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		return t, err
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.NS, b.NS) })
	busy, last, handed := map[string]string{}, map[string]string{}, map[string]bool{} // by uid: who works, who was the last
	for _, e := range all {
		other := busy[e.UID]
		at, isKilled := killed[other]
		isDead := isKilled && at <= e.NS
		switch {
		case e.Event == "begin" && (other == "" || isDead):
			handed[e.UID] = handed[e.UID] || last[e.UID] != "" && last[e.UID] != e.Shard
			busy[e.UID], last[e.UID] = e.Shard, e.Shard
			t.reconciles++
		case e.Event == "begin":
			return t, fmt.Errorf("%s was reconciled by %s and %s at once", e.Name, other, e.Shard)
		case e.Event == "end" && other == e.Shard:
			delete(busy, e.UID)
		case e.Event == "ack" && other != e.Shard:
		default:
			return t, fmt.Errorf("%s wrote %s of %s while %q worked on it", e.Shard, e.Event, e.Name, other)
		}
	}
	t.objects = len(last)
	for _, is := range handed {
		if is {
			t.handed++
		}
	}
	return t, nil
}
