package story

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

const (
	// readyTimeout is for one program.
	readyTimeout = 30 * time.Second
	// stopTimeout is longer than any program takes to end.
	stopTimeout = 40 * time.Second
	// period is the time between two looks at the cluster.
	period = 50 * time.Millisecond
	// patience is how long a step waits for what must come.
	patience = 2 * time.Minute
)

// Stage is an API server of its own, with the programs that run against it. All but the Screen
// belongs to one goroutine.
type Stage struct {
	*Screen

	Plane *controlplane.ControlPlane
	// Config is for clients without a limit of their own; API is one of them, without a cache.
	Config *rest.Config
	API    client.Client

	container string // that this runs in; empty: in none
	running   []*programs.Program
	gone      []*programs.Program // killed or stopped on purpose
}

func (s *Stage) open(ctx context.Context, d Demo) (*Story, error) {
	s.Action(time.Now(), "demo", "starting etcd and kube-apiserver")
	var err error
	if s.Plane, err = controlplane.Start(controlplane.Options{Unguarded: s.container != ""}); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // Ctrl-C: a control plane can be stopped only when it has started
	}
	if err := s.shareKubeconfig(); err != nil {
		return nil, err
	}
	s.Config = rest.CopyConfig(s.Plane.Config)
	s.Config.QPS = -1
	s.Config.WarningHandler = rest.NoWarnings{}
	if s.API, err = client.New(s.Config, client.Options{}); err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return d.Open(ctx, s)
}

// shareKubeconfig puts the kubeconfig where all programs of the container look for it.
func (s *Stage) shareKubeconfig() error {
	if s.container == "" {
		return nil
	}
	content, err := os.ReadFile(s.Plane.Kubeconfig)
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv(clientcmd.RecommendedConfigPathEnvVar), content, 0o600)
}

// Kubectl returns the commands after which the kubectl of another terminal, and the plugin in a
// directory, work on this cluster.
func (s *Stage) Kubectl(plugin string) (string, error) {
	if s.container != "" {
		// With a terminal, Ctrl-C ends what runs in the container, and not docker exec alone.
		return fmt.Sprintf(`  kubectl() { docker exec -i $([ -t 0 ] && [ -t 1 ] && echo -t) %s kubectl "$@"; }`, s.container), nil
	}
	assets, err := controlplane.Assets() // contain a kubectl for people who have none
	return fmt.Sprintf("  export KUBECONFIG=%s\n  export PATH=%s:$PATH:%s", s.Plane.Kubeconfig, plugin, assets), err
}

// close ends everything that runs and waits for it.
func (s *Stage) close() error {
	err := programs.StopAll(s.running, stopTimeout)
	for _, p := range s.gone {
		err = errors.Join(err, p.Kill()) // it may still run if it was only asked to end
	}
	if s.Plane != nil {
		err = errors.Join(err, s.Plane.Stop())
	}
	return err
}

// Add takes charge of programs, and returns when all that serve probes are ready.
func (s *Stage) Add(ctx context.Context, all ...*programs.Program) error {
	s.running = append(s.running, all...)
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, readyTimeout)
			defer cancel()
			if errs[i] = p.WaitReady(ctx); errs[i] == nil {
				s.Action(time.Now(), "demo", fmt.Sprintf("%-11s  is ready (process %d)", p.Identity, p.PID()))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// AddUnprobed takes charge of a program that serves no probes.
func (s *Stage) AddUnprobed(p *programs.Program) {
	s.running = append(s.running, p)
	s.Action(time.Now(), "demo", fmt.Sprintf("%-11s  starts (process %d)", p.Identity, p.PID()))
}

// Running returns the programs that run.
func (s *Stage) Running() []*programs.Program { return slices.Clone(s.running) }

// Kill ends the process of that identity as kill -9 does, and returns its process id.
func (s *Stage) Kill(identity string) (pid int, err error) {
	p, err := s.release(identity)
	if err != nil {
		return 0, err
	}
	return p.PID(), p.Kill()
}

// Terminate asks the process of that identity to end, and waits until it has ended.
func (s *Stage) Terminate(identity string) (exitCode int, err error) {
	p, err := s.release(identity)
	if err != nil {
		return 0, err
	}
	err = p.Stop(stopTimeout)
	return p.ExitCode(), err
}

// release returns the program of that identity, which may end from now on.
func (s *Stage) release(identity string) (*programs.Program, error) {
	i := slices.IndexFunc(s.running, func(p *programs.Program) bool { return p.Identity == identity })
	if i < 0 {
		return nil, fmt.Errorf("ending %s: no such process", identity)
	}
	p := s.running[i]
	s.running = slices.Delete(s.running, i, i+1)
	s.gone = append(s.gone, p)
	return p, nil
}

// check returns an error if a process has ended by itself.
func (s *Stage) check() error {
	for _, p := range s.running {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended by itself with exit code %d", p.Identity, p.ExitCode())
		default:
		}
	}
	return nil
}

// Until repeats a check until it returns nil. If that takes too long, it returns the last error.
func (s *Stage) Until(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, period, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// saveLogs writes what every process printed into a directory that stays, and prints its path.
func (s *Stage) saveLogs() {
	dir, err := os.MkdirTemp("", "nodekeeper-demo-logs-")
	for _, p := range slices.Concat(s.gone, s.running) {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, p.Identity+".log"), []byte(p.Output()), 0o600))
	}
	if err != nil {
		s.Note(fmt.Sprintf("The logs of the programs could not be kept: %v", err))
		return
	}
	s.Note("The logs of the programs are in " + dir)
}
