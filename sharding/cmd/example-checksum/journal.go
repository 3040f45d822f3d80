package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shard"
)

// journal records when work on each object begins and ends, so that tests can verify that no two
// shards work on one object at the same time. Several shards can append to the same file. A nil
// journal records nothing. It is safe for concurrent use.
type journal struct {
	file  *os.File
	shard string
}

// entry is a line of a journal.
type entry struct {
	Event           string    `json:"event"` // begin, end, ack
	Shard           string    `json:"shard"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Nanoseconds     int64     `json:"ns"` // by CLOCK_MONOTONIC, which all processes on a machine share
}

// openJournal opens a journal. It returns nil if path is empty.
func openJournal(path, name string) (*journal, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil journal records nothing
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the path is a flag
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	return &journal{file, name}, nil
}

// write records an event of work on a Secret.
func (j *journal) write(event string, s *corev1.Secret) error {
	return j.append(entry{Event: event, Kind: "Secret", Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion})
}

// acknowledged records that an object was released.
func (j *journal) acknowledged(a shard.Acknowledgement) {
	err := j.append(entry{Event: "ack", Kind: a.Kind.Kind, Namespace: a.Key.Namespace, Name: a.Key.Name, UID: a.UID, ResourceVersion: a.ResourceVersion})
	if err != nil {
		logf.Log.Error(err, "Writing the journal failed")
	}
}

// append appends an entry in one write.
func (j *journal) append(e entry) error {
	if j == nil {
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	e.Shard, e.Nanoseconds = j.shard, now.Nano()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a line of the journal: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}
