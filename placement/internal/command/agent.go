package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/internal/daemon/connect"
	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/internal/guard"
)

// Agent is the command agent: it runs in a pod of a pool, and runs a program for each virtual
// replica of the pod, or writes the contract into a file for another program. It returns nil if ctx
// ended, all work has stopped and the Lease is released.
func Agent(ctx context.Context, args []string, stderr io.Writer) error {
	var o common
	var a agent.Options
	var m mode
	var uid string
	var capacity int
	fs := flag.NewFlagSet("placement agent", flag.ContinueOnError)
	o.addFlags(fs)
	fs.StringVar(&a.Namespace, "namespace", "", "`namespace` of the pod (required)")
	fs.StringVar(&a.Pool, "pool", "", "`name` of the pool (required)")
	fs.StringVar(&a.Pod, "pod", "", "`name` of the pod (required)")
	fs.StringVar(&uid, "pod-uid", "", "`uid` of the pod (required)")
	fs.StringVar(&a.Zone, "zone", "", "`zone` of the pod (default none)")
	fs.IntVar(&capacity, "capacity", 0, "maximum `load` of the pod (default that of the pool)")
	fs.DurationVar(&a.LeaseDuration, "lease-duration", agent.DefaultLeaseDuration, "`duration` after which a pod that does not renew its Lease gets no new work; after twice that time, its work moves")
	m.addFlags(fs)
	if err := o.parse(fs, args, stderr); err != nil {
		return err
	}
	if a.PodUID = types.UID(uid); capacity < 0 || capacity > math.MaxInt32 {
		return fmt.Errorf("--capacity %d: give a number from 0 to %d", capacity, math.MaxInt32)
	}
	a.Capacity = int32(capacity)
	m.program = fs.Args()
	if err := checkAgent(&a); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	cfg, err := connect.Config("placement-agent", o.kubeconfig)
	if err != nil {
		return err
	}
	ctx = o.begin(ctx, fs, stderr)
	if m.file != "" {
		return agent.RunFiles(ctx, cfg, a, m.file)
	}
	return runPrograms(ctx, cfg, a, &m)
}

// mode is how the agent does the work of its pod.
type mode struct {
	exec      bool
	file      string
	readyLine string
	program   []string
}

func (m *mode) addFlags(fs *flag.FlagSet) {
	fs.BoolVar(&m.exec, "exec", false, "run the program that follows -- once for each virtual replica")
	fs.StringVar(&m.readyLine, "ready-line", "", "`line` that the program prints once it works (default none: it works when it has started)")
	fs.StringVar(&m.file, "file", "", "`directory` in which to write "+agent.ContractFile+" for a program that acknowledges it by "+agent.AcknowledgedFile+" (default none)")
}

// check returns an error in one line with advice.
func (m *mode) check() error {
	switch {
	case m.exec == (m.file != ""):
		return errors.New("give either --exec, with -- and a program behind all flags, or --file with a directory")
	case m.exec && len(m.program) == 0:
		return errors.New("--exec: give -- and the program behind all flags")
	case m.file != "" && len(m.program) > 0:
		return fmt.Errorf("unexpected argument %q: --file runs no program", m.program[0])
	case m.file != "" && m.readyLine != "":
		return errors.New("--ready-line is for --exec only")
	}
	return nil
}

// runPrograms runs the agent with a guard.
func runPrograms(ctx context.Context, cfg *rest.Config, a agent.Options, m *mode) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	g, err := guard.Start(guard.Config{
		Executable: executable, Pod: string(a.PodUID), StopTime: agent.LostStopTime(a.LeaseDuration), ReadyLine: m.readyLine, Program: m.program,
	})
	if err != nil {
		return err
	}
	defer g.Close()
	if err := g.WaitUp(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			return errors.New("ended while the guard of the former agent still runs: the Lease is not released")
		}
		return err
	}
	a.Renewed = g.Extend
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx, cfg, a, g) }()
	select {
	case err := <-ended:
		return err
	case <-g.Done():
		return guard.ErrEnded
	}
}

// checkAgent returns an error in one line with advice.
func checkAgent(a *agent.Options) error {
	for _, required := range []struct {
		flag, value string
		problems    func(string) []string
	}{
		{"namespace", a.Namespace, validation.IsDNS1123Label},
		{"pool", a.Pool, validation.IsValidLabelValue},
		{"pod", a.Pod, validation.IsDNS1123Subdomain},
		{"pod-uid", string(a.PodUID), validation.IsDNS1123Subdomain},
	} {
		if required.value == "" {
			return fmt.Errorf("--%s is required: see placement agent --help", required.flag)
		}
		if problems := required.problems(required.value); len(problems) > 0 {
			return fmt.Errorf("--%s %q: %s", required.flag, required.value, problems[0])
		}
	}
	if a.LeaseDuration < time.Second || a.LeaseDuration%time.Second != 0 {
		return fmt.Errorf("--lease-duration %s: give whole seconds", a.LeaseDuration)
	}
	return nil
}
