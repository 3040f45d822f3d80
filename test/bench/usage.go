package main

import (
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// usages returns the usage of every process by identity, including the servers of the control
// plane.
func (c *cluster) usages() (map[string]programs.Usage, error) {
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
	all := map[string]programs.Usage{}
	for identity, pid := range pids {
		used, err := programs.UsageOf(pid)
		if err != nil {
			return nil, err
		}
		all[identity] = used
	}
	return all, nil
}
