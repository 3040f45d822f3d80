package journal

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// planePeriod is how often a DataPlane looks at its file.
const planePeriod = 20 * time.Millisecond

// DataPlane is a data plane for placement agent --file that writes a journal.
type DataPlane struct {
	// Files is the directory of --file, Journal that of the journal.
	Files, Journal string
	// Pod is the name of the pod.
	Pod string
	// MaxAge is the age of the file after which everything must stop.
	MaxAge time.Duration
	// Mute makes it acknowledge nothing, and Stubborn makes it stop nothing unless the file is old.
	Mute, Stubborn atomic.Bool

	running map[contract.Unit]*unitWork
	answer  string
}

type unitWork struct {
	epoch   int64
	stopped func() error
}

// Run works until ctx ends, and then as if the process was killed: without an acknowledgement.
func (p *DataPlane) Run(ctx context.Context) error {
	p.running = map[contract.Unit]*unitWork{}
	ticker := time.NewTicker(planePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.stop(func(contract.Unit, *unitWork) bool { return true })
		case <-ticker.C:
			if err := p.look(); err != nil {
				return err
			}
		}
	}
}

// look does what the file requires.
func (p *DataPlane) look() error {
	path := filepath.Join(p.Files, agent.ContractFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := contract.DecodeContract(text)
	if err != nil {
		return err
	}
	info, err := os.Stat(path) // after it was read: the contract may have a time that is too new, for one period
	if err != nil {
		return err
	}
	isOld := time.Since(info.ModTime()) > p.MaxAge
	err = p.stop(func(u contract.Unit, w *unitWork) bool {
		epoch, listed := c.Entry(u.UID).Lists(u.Index)
		return isOld || !p.Stubborn.Load() && (!listed || epoch != w.epoch)
	})
	if !isOld {
		err = errors.Join(err, p.start(&c))
	}
	if err != nil || p.Mute.Load() {
		return err
	}
	return p.acknowledge(&c, isOld)
}

func (p *DataPlane) stop(mustStop func(contract.Unit, *unitWork) bool) error {
	var errs []error
	for u, w := range p.running {
		if mustStop(u, w) {
			errs = append(errs, w.stopped())
			delete(p.running, u)
		}
	}
	return errors.Join(errs...)
}

func (p *DataPlane) start(c *contract.Contract) error {
	for _, e := range c.Entries {
		for index, epoch := range e.Replicas {
			u := contract.Unit{UID: e.UID, Index: index}
			if p.running[u] != nil {
				continue
			}
			stopped, err := Entry{Name: e.Name, Index: index, Epoch: epoch, PID: os.Getpid(), Pod: p.Pod, Of: e.Of, UID: string(e.UID)}.Begin(p.Journal)
			if err != nil {
				return err
			}
			p.running[u] = &unitWork{epoch: epoch, stopped: stopped}
		}
	}
	return nil
}

func (p *DataPlane) acknowledge(c *contract.Contract, isOld bool) error {
	answer := struct {
		Generation int64                      `json:"generation"`
		Stopping   map[types.UID]schedule.Set `json:"stopping,omitempty"`
		Failing    map[types.UID]string       `json:"failing,omitempty"`
	}{c.Generation, map[types.UID]schedule.Set{}, map[types.UID]string{}}
	if isOld && len(c.Entries) > 0 {
		answer.Failing[contract.Everything] = "the contract is old"
	}
	for u, w := range p.running {
		if epoch, listed := c.Entry(u.UID).Lists(u.Index); !listed || epoch != w.epoch {
			answer.Stopping[u.UID] = append(answer.Stopping[u.UID], u.Index)
		}
	}
	text, err := json.Marshal(answer)
	if err != nil || string(text) == p.answer {
		return err
	}
	p.answer = string(text)
	path := filepath.Join(p.Files, agent.AcknowledgedFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
