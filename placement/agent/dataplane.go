package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

const (
	// ContractFile is the name of the file that [RunFiles] writes.
	ContractFile = "contract.json"
	// AcknowledgedFile is the name of the file that [RunFiles] reads.
	AcknowledgedFile = "acknowledged.json"

	// temporaryFile becomes ContractFile.
	temporaryFile = ".contract.json.new"
	// pollPeriod is how often AcknowledgedFile is read. The file system may be one that reports no
	// changes.
	pollPeriod = 100 * time.Millisecond
	// storePeriod is the delay after a failed write of ContractFile.
	storePeriod = time.Second
	// maxAnswer bounds what is read of AcknowledgedFile, in bytes.
	maxAnswer = 1 << 20
	// unanswered is the failure of work that the data plane has not acknowledged.
	unanswered = "not acknowledged by the data plane"
	// stopping is the epoch of work that has to stop, whatever epoch it was started with.
	stopping int64 = -1
)

// dataPlane is the team that is another program of the pod, which reads the contract in a file.
//
// The program may work as long as the file is not older than the renew deadline. So the time of the
// file is always that of a renewal, also if this process was frozen before it writes the file.
type dataPlane struct {
	dir           string
	leaseDuration time.Duration
	now           func() time.Duration // the time by package boottime
	ticks         chan event
	ended         chan struct{}

	// file is the contract that the file must have. Its generation is higher than that of each
	// former version, so that an acknowledgement of one cannot be mistaken for that of another.
	file contract.Contract
	// followed is the generation of the contract that it comes from, or 0 if everything must stop.
	followed int64
	stored   bool // the file has it
	answered bool // the program has acknowledged it
	units    map[contract.Unit]contract.Work

	answer  string        // the content of AcknowledgedFile
	renewed time.Duration // when the latest renewal was sent
	last    time.Duration // after that, the program has stopped everything by the age of the file
	retry   time.Duration // when a failed write is tried again
	problem string        // of the file, as logged
}

// RunFiles is like [Run] for a data plane: another program of the pod, which needs no rights on the
// API server. Dir is a directory that both have, for example an emptyDir.
//
// RunFiles replaces the file [ContractFile] by each contract. With each renewal of the Lease, it
// sets the file's modification time to that of the renewal. The program must
//
//   - stop everything when the file is older than [RenewDeadline], within [LostStopTime];
//   - do what a changed file requires: stop what is not listed with the same epoch, start what is
//     listed, and replace [AcknowledgedFile] by {"generation":N,"stopping":{…},"failing":{…}}, with
//     the generation of the file. The two maps have the form of those in an acknowledgement: UIDs
//     with the indexes that still run and must not, and with the reason why something does not work;
//   - replace it again when it is out of date, even if the contract's file is old.
//
// Nothing counts as working until the program has acknowledged it. When the Lease is lost and when
// ctx ends, the file lists nothing. RunFiles releases the Lease, or joins the pool again, when the
// program has acknowledged that without stopping anything. Without an answer, it waits until the
// program must have stopped by the age of the file.
//
// RunFiles returns an error, too, if it cannot write in dir, another RunFiles uses it, or
// Options.OnLostLease is [Keep]: the program decides what to do when the file is old, not the agent.
func RunFiles(ctx context.Context, cfg *rest.Config, o Options, dir string) error {
	if o.OnLostLease != Stop {
		return errors.New("OnLostLease must be Stop: a data plane stops by the age of its file")
	}
	a, err := newAgent(cfg, o)
	if err != nil {
		return err
	}
	locked, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = locked.Close() }() // nothing was written to it
	if a.plane, err = openDataPlane(dir, a.LeaseDuration, a.now); err != nil {
		return err
	}
	go a.plane.tick()
	defer close(a.plane.ended)
	return a.run(ctx)
}

// openDataPlane returns the data plane with what an earlier process may have started.
func openDataPlane(dir string, leaseDuration time.Duration, now func() time.Duration) (*dataPlane, error) {
	p := &dataPlane{
		dir: dir, leaseDuration: leaseDuration, now: now, ticks: make(chan event), ended: make(chan struct{}),
		units: map[contract.Unit]contract.Work{}, stored: true,
	}
	if err := os.WriteFile(p.path(temporaryFile), nil, 0o600); err != nil {
		return nil, fmt.Errorf("writing for the data plane: %w", err)
	}
	_ = os.Remove(p.path(temporaryFile)) // or the first write replaces it
	text, err := os.ReadFile(p.path(ContractFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading what an earlier process has written: %w", err)
	default:
		if err := p.resume(text); err != nil {
			return nil, err
		}
	}
	if a, err := contract.DecodeAck(p.readAnswer()); err == nil && a.Generation < placement.MaxNumber/2 {
		p.file.Generation = max(p.file.Generation, a.Generation)
	}
	return p, nil
}

// resume begins with the file of an earlier process. Its program may still work by it. A malformed
// file lists nothing.
func (p *dataPlane) resume(text []byte) error {
	info, err := os.Stat(p.path(ContractFile))
	if err != nil {
		return fmt.Errorf("reading what an earlier process has written: %w", err)
	}
	p.file, _ = contract.DecodeContract(text) // the zero value is right for a malformed one
	former := cmp.Or(contract.LeaseDuration(p.file.Incarnation), p.leaseDuration)
	p.last = p.now() - max(time.Since(info.ModTime()), 0) + RenewDeadline(former) + LostStopTime(former)
	if a, err := contract.DecodeAck(p.readAnswer()); err == nil && a.Generation == p.file.Generation {
		p.accept(&a)
	} else {
		p.units[contract.Unit{UID: contract.Everything}] = contract.Work{Epoch: stopping} // of former versions
	}
	p.addListed(func(contract.Entry) bool { return true })
	return nil
}

func (p *dataPlane) path(name string) string { return filepath.Join(p.dir, name) }

// tick makes the loop read the acknowledgement again and again.
func (p *dataPlane) tick() {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.ended:
			return
		}
		select {
		case p.ticks <- event{}:
		default: // no loop runs, or another event has woken it up
		}
	}
}

func (p *dataPlane) next() <-chan event { return p.ticks }

// close implements team. The data plane outlives the loop.
func (p *dataPlane) close() {}

func (p *dataPlane) work() map[contract.Unit]contract.Work { return p.units }

// follow implements team.
func (p *dataPlane) follow(ctx context.Context, c *contract.Contract) {
	if c.Incarnation != "" && c.Generation != p.followed {
		p.replace(*c, c.Generation)
	}
	p.store(ctx)
}

// stopAll implements team.
func (p *dataPlane) stopAll(ctx context.Context) {
	if p.followed != 0 || len(p.file.Entries) > 0 {
		p.replace(contract.Contract{Incarnation: p.file.Incarnation}, 0)
	}
	p.store(ctx)
	if !p.answered && p.now() >= p.last {
		clear(p.units)
	}
}

// idle stops everything, and reports whether nothing runs.
func (p *dataPlane) idle(ctx context.Context) bool {
	p.handle(ctx, event{})
	p.stopAll(ctx)
	return len(p.units) == 0
}

// replace sets the contract that the file must contain. Units that it no longer lists may run until
// the program has acknowledged it.
func (p *dataPlane) replace(c contract.Contract, followed int64) {
	before := p.file
	p.file, p.followed, p.stored, p.answered, p.retry = c, followed, false, false, 0
	p.file.Generation = max(c.Generation, before.Generation+1)
	p.addListed(func(e contract.Entry) bool {
		old := before.Entry(e.UID)
		return old == nil || old.Changed != e.Changed
	})
}

// addListed adds what the file lists to what may run. It does not count as working if its entry has
// changed.
func (p *dataPlane) addListed(changed func(contract.Entry) bool) {
	for _, e := range p.file.Entries {
		for index, epoch := range e.Replicas {
			u := contract.Unit{UID: e.UID, Index: index}
			if w, runs := p.units[u]; !runs || w.Epoch == epoch && changed(e) {
				p.units[u] = contract.Work{Epoch: epoch, Failure: unanswered}
			}
		}
	}
}

// store writes the file unless it is as it must be.
func (p *dataPlane) store(ctx context.Context) {
	if p.stored || p.now() < p.retry {
		return
	}
	if err := p.write(); err != nil {
		p.retry = p.now() + storePeriod
		p.log(ctx, "Writing the contract for the data plane failed, retrying", err.Error())
		return
	}
	p.stored, p.problem = true, ""
}

// write replaces the file, with the time of the latest renewal.
func (p *dataPlane) write() error {
	temporary := p.path(temporaryFile)
	if err := os.WriteFile(temporary, p.file.Encode(), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o644); err != nil { //nolint:gosec // the program may have another user
		return err
	}
	if err := p.touch(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, p.path(ContractFile))
}

// touch gives a file the time of the latest renewal that the program may work by.
func (p *dataPlane) touch(path string) error {
	if p.followed != 0 {
		p.last = p.renewed + RenewDeadline(p.leaseDuration) + LostStopTime(p.leaseDuration)
	}
	at := time.Now().Add(p.last - RenewDeadline(p.leaseDuration) - LostStopTime(p.leaseDuration) - p.now())
	return os.Chtimes(path, at, at)
}

// extend implements team.
func (p *dataPlane) extend(_ context.Context, sent time.Duration) {
	p.renewed = sent
	if p.followed == 0 || !p.stored {
		return
	}
	if err := p.touch(p.path(ContractFile)); err != nil {
		p.stored, p.retry = false, 0 // it was removed
	}
}

// handle reads the acknowledgement. The event has no content.
func (p *dataPlane) handle(ctx context.Context, _ event) {
	text := p.readAnswer()
	if string(text) == p.answer {
		return
	}
	p.answer = string(text)
	a, err := contract.DecodeAck(text)
	if err != nil {
		p.log(ctx, "Ignoring the acknowledgement of the data plane", err.Error())
		return
	}
	if a.Generation == p.file.Generation {
		p.accept(&a)
	}
}

// readAnswer returns the acknowledgement, or nothing if it cannot be read: the program has not
// written it.
func (p *dataPlane) readAnswer() []byte {
	f, err := os.Open(p.path(AcknowledgedFile))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAnswer))
	if errors.Join(err, f.Close()) != nil {
		return nil
	}
	return text
}

// accept records an acknowledgement of the file.
func (p *dataPlane) accept(a *contract.Ack) {
	p.answered = true
	clear(p.units)
	for uid, indexes := range a.Stopping {
		for _, index := range indexes {
			p.units[contract.Unit{UID: uid, Index: index}] = contract.Work{Epoch: stopping}
		}
	}
	for _, e := range p.file.Entries {
		failure := cmp.Or(a.Failing[e.UID], a.Failing[contract.Everything])
		failure = failure[:min(len(failure), maxFailure)]
		for index, epoch := range e.Replicas {
			if u := (contract.Unit{UID: e.UID, Index: index}); !a.Stops(e.UID, index) {
				p.units[u] = contract.Work{Epoch: epoch, Working: !a.Fails(e.UID), Failure: failure}
			}
		}
	}
}

// log logs a problem once.
func (p *dataPlane) log(ctx context.Context, message, problem string) {
	if p.problem != problem {
		p.problem = problem
		logr.FromContextOrDiscard(ctx).Info(message, "directory", p.dir, "error", problem)
	}
}
