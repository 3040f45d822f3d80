// Command demo shows on a terminal what placement does (make placement-demo). It starts etcd and
// kube-apiserver, the controller, and three agents, and creates a Queue with six partitions. Then
// one agent is killed, and another one is asked to end. It prints a line for each start and stop of
// a worker, and exits with 0 only if every step had the expected result, and no partition was ever
// worked on by two pods at once.
//
// steps.go has the steps. Package journal is the program that the agents run, and checks what it
// wrote down; package story has the rest of the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/story"
)

const (
	namespace, pool, queue = "shop", "worker", "orders"
	partitions             = 6
	// leaseDuration is short, so that the work of an agent that is killed soon moves: after twice
	// this time.
	leaseDuration = 3 * time.Second
	// tailPeriod is how often the journal is read.
	tailPeriod = 10 * time.Millisecond
	// workEnv makes this program a worker: it is the directory of the journal.
	workEnv = "PLACEMENT_DEMO_JOURNAL"
)

func main() {
	if dir := os.Getenv(workEnv); dir != "" {
		if err := journal.Work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	story.Main(story.Demo{Name: "placement-demo", Title: "Placement, on a cluster of its own", Open: open})
}

const look = `  kubectl -n shop get queues
  kubectl -n shop get configmaps,leases -l placement.nodekeeper.dev/pool=worker`

// demo is the cluster with the controller and the agents in it.
type demo struct {
	*story.Stage

	dir  string // of the journal
	tail sync.WaitGroup
	end  context.CancelFunc // ends the tail
}

func open(ctx context.Context, s *story.Stage) (*story.Story, error) {
	dir, err := os.MkdirTemp("", "nodekeeper-placement-demo-")
	if err != nil {
		return nil, err
	}
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	d := &demo{Stage: s, dir: dir, end: end}
	t := &story.Story{Steps: d.steps(), Terminal: "  export KUBECONFIG=" + s.Plane.Kubeconfig, Look: look, Close: func() {
		d.end()
		d.tail.Wait()
		// The workers may still write, so the programs end first.
		_ = os.RemoveAll(dir)
	}}
	d.tail.Go(func() { d.print(within) })
	return t, d.open(ctx)
}

func (d *demo) open(ctx context.Context) error {
	if err := queues.Install(ctx, d.Plane.Config); err != nil {
		return err
	}
	if err := d.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	pools, err := queues.WritePools(d.dir, namespace, pool, "")
	if err != nil {
		return err
	}
	d.Action(time.Now(), "demo", "Queues are served; starting the controller")
	p, err := programs.Launch(nil, "placement", "controller", "controller", "--kubeconfig="+d.Plane.Kubeconfig, "--pool-config="+pools,
		"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0")
	if err != nil {
		return err
	}
	return d.Add(ctx, p)
}

// startAgent starts an agent for a pod of that name.
func (d *demo) startAgent(pod string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := programs.Launch([]string{workEnv + "=" + d.dir, journal.PodEnv + "=" + pod}, "placement", pod, "agent",
		"--kubeconfig="+d.Plane.Kubeconfig, "--namespace="+namespace, "--pool="+pool, "--pod="+pod, "--pod-uid="+string(uuid.NewUUID()),
		"--lease-duration="+leaseDuration.String(), "--exec", "--", self)
	if err == nil {
		d.AddUnprobed(p)
	}
	return err
}

// print prints the lines of the journal as they come.
func (d *demo) print(ctx context.Context) {
	printed := 0
	for tick := time.Tick(tailPeriod); ; {
		all, err := journal.Read(d.dir)
		if err != nil {
			return // the audit shows the error
		}
		for _, e := range all[printed:] {
			text := fmt.Sprintf("%-5s  %s %d of %d", e.Event, e.Name, e.Index, e.Of)
			if e.Event == journal.Start {
				text += fmt.Sprintf(", epoch %d (process %d)", e.Epoch, e.PID)
			}
			d.Action(time.Now(), e.Pod, text)
		}
		printed = len(all)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// owners returns the pod of each partition that a worker works on, by the journal.
func (d *demo) owners() (map[int32]string, error) {
	all, err := journal.Read(d.dir)
	if err == nil {
		err = journal.Check(all)
	}
	return journal.Owners(all, queue), err
}

// untilWorked waits until each partition is worked on by one of these pods, and the Queue is Ready.
func (d *demo) untilWorked(ctx context.Context, pods ...string) (map[int32]string, error) {
	var owners map[int32]string
	err := d.Until(ctx, func(ctx context.Context) error {
		var err error
		if owners, err = d.owners(); err != nil {
			return err
		}
		has := map[string]int{}
		for _, pod := range owners {
			has[pod]++
		}
		for _, pod := range pods {
			if has[pod] == 0 {
				return fmt.Errorf("%s works on nothing", pod)
			}
			delete(has, pod)
		}
		if len(has) > 0 || len(owners) != partitions {
			return fmt.Errorf("the partitions are worked on by %v", owners)
		}
		return d.isReady(ctx)
	})
	return owners, err
}

var errNotReady = errors.New("the Queue is not Ready")
