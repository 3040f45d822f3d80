package main

import (
	"fmt"

	"github.com/prometheus/procfs"

	"nodekeeper.dev/test/controlplane"
)

// usage is what a process has used since it started.
type usage struct {
	cpuSeconds float64
	// peakMiB is the most memory that it had resident at a time.
	peakMiB float64
}

func usageOf(pid int) (usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("finding process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("reading the times of process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return usage{cpuSeconds: stat.CPUTime(), peakMiB: float64(status.VmHWM) / (1 << 20)}, nil
}

// usages are those of every process, by identity; the servers of the control plane too.
func (c *cluster) usages() (map[string]usage, error) {
	pids := map[string]int{}
	for _, p := range c.programs {
		pids[p.Identity] = p.PID()
	}
	for _, s := range []controlplane.Server{controlplane.Etcd, controlplane.APIServer} {
		pid, err := c.plane.PID(s)
		if err != nil {
			return nil, err
		}
		pids[string(s)] = pid
	}
	all := map[string]usage{}
	for identity, pid := range pids {
		used, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		all[identity] = used
	}
	return all, nil
}
