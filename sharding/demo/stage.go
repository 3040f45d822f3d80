package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/sharding/test/rings"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/story"
)

const (
	prefix   = v1alpha1.DefaultPrefix
	ringName = "website"
	// shardNamespace is where the shards have their Leases, objectNamespace where the Secrets are.
	shardNamespace, objectNamespace = "web-system", "team-a"
	// leaseDuration is short, so that a shard that is killed is soon found dead: after twice this time.
	leaseDuration = 5 * time.Second
	// work is how long a shard works on a Secret, so that two at once would show.
	work = 30 * time.Millisecond
	// period is the time between two looks at the cluster.
	period = 100 * time.Millisecond
	// patience is how long a step waits for what must come.
	patience = 2 * time.Minute
	// stopTimeout is longer than a shard needs to give its objects away.
	stopTimeout = 40 * time.Second
)

// stage is the cluster with the sharder and the shards in it.
type stage struct {
	out   *story.Screen
	plane *controlplane.ControlPlane
	api   client.Client
	view  *ringview.Cluster
	crew  story.Crew
	user  user

	dir     string // of the journal
	journal string
	// killed are when shards were killed, by CLOCK_MONOTONIC, which journals have too.
	killed map[string]int64
}

// openStage starts the control plane and the sharder. The caller must close the stage.
func openStage(ctx context.Context, out *story.Screen) (*stage, error) {
	s := &stage{out: out, crew: story.Crew{Out: out}, killed: map[string]int64{}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) open(ctx context.Context) error {
	s.out.Heading("The sharder, on a cluster of its own")
	var err error
	if s.dir, err = os.MkdirTemp("", "nodekeeper-shard-demo-"); err != nil {
		return err
	}
	s.journal = filepath.Join(s.dir, "journal")
	s.out.Say(time.Now(), "demo", "starting etcd and kube-apiserver")
	if s.plane, err = controlplane.Start(controlplane.Options{}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // Ctrl-C: a control plane can be stopped only when it has started
	}
	if err := rings.Install(ctx, s.plane.Config); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	for _, name := range []string{shardNamespace, objectNamespace} {
		if err := s.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	s.out.Say(time.Now(), "demo", "ClusterRings are served; starting the sharder")
	p, err := programs.Start("sharder", "sharder-0", s.plane.Kubeconfig)
	if err != nil {
		return err
	}
	s.crew.Add(p)
	return s.crew.WaitReady(ctx, p)
}

func (s *stage) connect() error {
	cfg := rest.CopyConfig(s.plane.Config)
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{}
	var err error
	if s.api, err = client.New(cfg, client.Options{}); err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	s.view = &ringview.Cluster{Client: s.api, Mapper: s.api.RESTMapper(), Prefix: prefix, SharderNamespace: "sharder-system"}
	s.user = user{api: s.api}
	return nil
}

// check returns what is wrong besides the result of a step.
func (s *stage) check() error { return errors.Join(s.crew.Check(), s.user.failure()) }

// close ends everything that runs and waits for it.
func (s *stage) close() error {
	s.user.stop()
	err := s.crew.Stop()
	if s.plane != nil {
		err = errors.Join(err, s.plane.Stop())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// startShard starts an example-checksum.
func (s *stage) startShard(name string) error {
	p, err := programs.Launch(nil, "example-checksum", name,
		"--kubeconfig="+s.plane.Kubeconfig, "--ring="+ringName, "--lease-namespace="+shardNamespace, "--namespace="+objectNamespace,
		"--shard-name="+name, "--lease-duration="+leaseDuration.String(), "--work="+work.String(), "--journal="+s.journal)
	if err != nil {
		return err
	}
	s.crew.Add(p)
	s.out.Say(time.Now(), "demo", fmt.Sprintf("shard %s starts (process %d)", name, p.PID()))
	return nil
}

// until waits for what must come.
func until(ctx context.Context, what string, is func(ctx context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, period, patience, true, is); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// untilRing waits until the ring is as asked for.
func (s *stage) untilRing(ctx context.Context, what string, is func(*ringview.Ring) bool) error {
	return until(ctx, what, func(ctx context.Context) (bool, error) {
		r, err := s.view.Ring(ctx, ringName)
		return err == nil && is(r), err
	})
}

// isTrue reports whether a condition of a ring holds.
func isTrue(r *ringview.Ring, condition string) bool {
	return meta.IsStatusConditionTrue(r.Conditions, condition)
}

// isSettled reports whether a ring has exactly these shards with slots, and nothing is left to move.
func isSettled(r *ringview.Ring, shards ...string) bool {
	n := 0
	for _, m := range r.Members {
		if m.Slots > 0 {
			n++
		}
	}
	for _, name := range shards {
		if stateOf(r, name) != "ready" {
			return false
		}
	}
	return n == len(shards) && isTrue(r, "Ready") && r.Moving == 0 && r.Unassigned == 0
}

// stateOf returns the state of a shard, "" if the ring has no such shard.
func stateOf(r *ringview.Ring, name string) string {
	for _, m := range r.Members {
		if m.Name == name {
			return m.State
		}
	}
	return ""
}
