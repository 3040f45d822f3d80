package main

import (
	"context"
	"os"
	"strconv"

	"k8s.io/client-go/discovery"

	"nodekeeper.dev/test/programs"
)

// profileSeconds is how long a profile of the API server is: shorter than the creates take.
const profileSeconds = 5

// used prints what the sharder has used so far.
func (b *bench) used(when string) error {
	usage, err := programs.UsageOf(b.sharder.PID())
	if err != nil {
		return err
	}
	b.say("sharder "+when+": peak memory, MiB; CPU, s", "%.0f; %.1f", usage.PeakMiB(), usage.CPU.Seconds())
	return nil
}

// profile writes a CPU profile of the API server, if that is asked for. The returned channel tells when it is done.
func (b *bench) profile(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if b.profileFile == "" {
		done <- nil
		return done
	}
	go func() {
		d, err := discovery.NewDiscoveryClientForConfig(b.plane.Config)
		if err != nil {
			done <- err
			return
		}
		content, err := d.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(profileSeconds)).Do(ctx).Raw()
		if err != nil {
			done <- err
			return
		}
		done <- os.WriteFile(b.profileFile, content, 0o600)
	}()
	return done
}
