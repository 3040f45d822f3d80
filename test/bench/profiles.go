package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/ports"
)

// profiles takes CPU profiles during a measurement, and heap profiles after it, of the API server
// and of the first replica of each program. The zero value takes none. Profiles cost time, so
// figures are from runs without them.
type profiles struct {
	// dir is the directory for the files <process>-<count>.cpu and .heap, which go tool pprof reads.
	dir string
	// length is the duration of a CPU profile.
	length time.Duration
}

// args returns the flags that make a program serve its profiles, and their URL.
func (p profiles) args() (args []string, url string, err error) {
	if p.dir == "" {
		return nil, "", nil
	}
	address, err := ports.Address()
	return []string{"--pprof-bind-address=" + address}, "http://" + address, err
}

// cpu starts to take CPU profiles. The caller must call the returned function, which waits for them
// and takes the heap profiles.
func (p profiles) cpu(ctx context.Context, c *cluster, scene string) (end func() error) {
	if p.dir == "" {
		return func() error { return nil }
	}
	sources, err := p.sources(c)
	if err != nil {
		return func() error { return err }
	}
	cpu, cpuCtx := errgroup.WithContext(ctx)
	seconds := strconv.Itoa(max(1, int(p.length.Seconds())))
	for name, s := range sources {
		cpu.Go(func() error { return p.take(cpuCtx, s, "profile?seconds="+seconds, name+"-"+scene+".cpu") })
	}
	return func() error {
		if err := cpu.Wait(); err != nil {
			return err
		}
		for name, s := range sources {
			if err := p.take(ctx, s, "heap", name+"-"+scene+".heap"); err != nil {
				return err
			}
		}
		return nil
	}
}

// source is the URL of a process's profiles.
type source struct {
	url    string
	client *http.Client
}

func (p profiles) sources(c *cluster) (map[string]source, error) {
	toServer, err := rest.HTTPClientFor(c.plane.Config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	all := map[string]source{string(controlplane.APIServer): {url: strings.TrimSuffix(c.plane.Config.Host, "/"), client: toServer}}
	for identity, url := range c.profiled {
		all[identity] = source{url: url, client: http.DefaultClient}
	}
	return all, os.MkdirAll(p.dir, 0o755)
}

func (p profiles) take(ctx context.Context, s source, what, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/debug/pprof/"+what, nil)
	if err != nil {
		return fmt.Errorf("taking the profile %s: %w", file, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("taking the profile %s: %w", file, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err != nil {
		return fmt.Errorf("taking the profile %s: %w", file, err)
	}
	return os.WriteFile(filepath.Join(p.dir, file), body, 0o644)
}
