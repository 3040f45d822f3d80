// Package journal is a program for placement agent --exec that writes down when it works, and the
// check that no two of them work on one virtual replica at the same time.
//
// Each process holds a lock on a file of its virtual replica. The kernel releases it when the
// process ends, however that happens, so an overlap shows at once and does not depend on time. The
// work of a deleted resource may overlap with that of its successor of the same name, which a fence
// keeps apart by higher epochs.
package journal

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The events of a journal.
const (
	Start   = "start"
	Stop    = "stop"
	Overlap = "overlap"
)

// PodEnv is the environment variable with the name of the pod.
const PodEnv = "POD_NAME"

// Entry is a line of a journal.
type Entry struct {
	NS          int64 // the time in nanoseconds by CLOCK_MONOTONIC
	Event, Name string
	Index       int32
	Epoch       int64
	PID         int
	Pod         string
	Of          int32
	UID         string // of the resource
}

const format = "%d %s %s %d %d %d %s %d %s"

// Work is a program that works on a virtual replica until SIGTERM. It writes a journal in a
// directory.
func Work(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	stopped, err := FromEnv().Begin(dir)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stopped()
}

// FromEnv returns the entry of this process, by the environment of its agent.
func FromEnv() Entry {
	number := func(key string) int64 {
		n, err := strconv.ParseInt(os.Getenv(key), 10, 64)
		if err != nil {
			return -1 // no worker has it
		}
		return n
	}
	return Entry{
		Name: os.Getenv("PLACEMENT_NAME"), Index: int32(number("PLACEMENT_INDEX")), Epoch: number("PLACEMENT_EPOCH"),
		PID: os.Getpid(), Pod: os.Getenv(PodEnv), Of: int32(number("PLACEMENT_OF")), UID: os.Getenv("PLACEMENT_UID"),
	}
}

// Begin begins to work on a virtual replica: it takes the lock, and writes the start into the
// journal. The work ends when stopped is called, or the process ends.
func (e Entry) Begin(dir string) (stopped func() error, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("lock-%s-%d", e.UID, e.Index)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process works on %s %d: %w", e.Name, e.Index, err), e.write(dir, Overlap), lock.Close())
	}
	if err := e.write(dir, Start); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() error { return errors.Join(e.write(dir, Stop), lock.Close()) }, nil
}

// write appends a line to the journal, in one write.
func (e Entry) write(dir, event string) error {
	now, err := Now()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(Path(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, format+"\n", now, event, e.Name, e.Index, e.Epoch, e.PID, e.Pod, e.Of, e.UID)
	return errors.Join(err, file.Close())
}

// Path returns the path of the journal in a directory.
func Path(dir string) string { return filepath.Join(dir, "journal") }

// Read returns the lines of a journal. A journal that does not exist yet is empty.
func Read(dir string) ([]Entry, error) {
	content, err := os.ReadFile(Path(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return Parse(strings.NewReader(string(content)))
}

// Parse returns the lines of a journal.
func Parse(r io.Reader) (all []Entry, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e Entry
		if _, err := fmt.Sscanf(lines.Text(), format, &e.NS, &e.Event, &e.Name, &e.Index, &e.Epoch, &e.PID, &e.Pod, &e.Of, &e.UID); err != nil {
			return nil, fmt.Errorf("reading a line of the journal (%s): %w", lines.Text(), err)
		}
		all = append(all, e)
	}
	return all, lines.Err()
}

// unit is a virtual replica.
type unit struct {
	name  string
	index int32
}

// Restore is a restore of etcd while programs ran.
type Restore struct {
	// Begin and Settled are when it began, and when every agent had acknowledged a contract that was
	// written after it, by the clock of the journal. Meanwhile work may overlap.
	Begin, Settled int64
	// LostFrom and LostTo bound the epochs that were granted in the lost history: after the backup
	// and before the restore, by Unix time in milliseconds. An owner by the restored decision keeps its
	// epoch, although that history may have given a higher one to another pod.
	LostFrom, LostTo int64
}

// Check returns an error if two processes worked on one virtual replica at the same time, or if its
// epochs do not grow from one owner to the next, or from a resource to its successor of the same
// name.
func Check(all []Entry, restores ...Restore) error {
	started, order := map[unit][]Entry{}, map[succession]int{}
	for _, e := range all {
		u := unit{e.Name, e.Index}
		isUnsettled := slices.ContainsFunc(restores, func(r Restore) bool { return r.Begin <= e.NS && e.NS < r.Settled })
		switch {
		case e.Event == Overlap && !isUnsettled:
			return fmt.Errorf("%s worked on %s %d while another process did", e.Pod, e.Name, e.Index)
		case e.Event != Start:
			continue
		}
		for _, former := range started[u] {
			if isUnsettled || isLost(former, e, restores) {
				continue
			}
			if !inOrder(former, e, order) {
				return fmt.Errorf("%s works on %s %d of %s with epoch %d after %s of %s with epoch %d", e.Pod, e.Name, e.Index, e.UID, e.Epoch, former.Pod, former.UID, former.Epoch)
			}
		}
		started[u] = append(started[u], e)
	}
	return nil
}

// succession is a pair of resources of the same name.
type succession struct{ former, next string }

// inOrder reports whether the epochs of two starts of one virtual replica are in order. A process of
// a deleted resource may start late, but all epochs of one resource must be higher than all of the
// other one.
func inOrder(former, e Entry, order map[succession]int) bool {
	if e.UID == former.UID {
		return e.Epoch > former.Epoch || e.Epoch == former.Epoch && e.Pod == former.Pod
	}
	sign, pair := cmp.Compare(former.Epoch, e.Epoch), succession{former.UID, e.UID}
	if _, ok := order[pair]; !ok {
		order[pair], order[succession{e.UID, former.UID}] = sign, -sign
	}
	return sign != 0 && order[pair] == sign
}

// isLost reports whether a restore before an entry has discarded the decision of a former one.
func isLost(former, e Entry, restores []Restore) bool {
	return slices.ContainsFunc(restores, func(r Restore) bool {
		return r.Settled <= e.NS && former.NS < r.Settled && r.LostFrom <= former.Epoch && former.Epoch <= r.LostTo
	})
}

// Owners returns the pod that last started each virtual replica of a resource, and has not stopped
// it.
func Owners(all []Entry, name string) map[int32]string {
	owners := map[int32]string{}
	for _, e := range all {
		switch {
		case e.Name != name:
		case e.Event == Start:
			owners[e.Index] = e.Pod
		case e.Event == Stop && owners[e.Index] == e.Pod:
			delete(owners, e.Index)
		}
	}
	return owners
}

// Now returns the time by the clock of the journal.
func Now() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return now.Nano(), nil
}
