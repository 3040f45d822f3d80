// Command demo shows on a terminal what the sharder does (make shard-demo). It starts etcd and
// kube-apiserver, the sharder, and three shards of example-checksum, and plays a user who creates
// and edits Secrets while shards die, join and leave. After each step it prints which shard has
// what. It exits with 0 only if every step had the expected result, and no Secret was ever
// reconciled by two shards at once.
//
// steps.go has the steps, secrets.go the user and what the shards have, and journal.go checks what
// the shards wrote down about their work. Package story has the rest of the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/sharding/test/crds"
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
)

func main() {
	story.Main(story.Demo{Name: "shard-demo", Title: "The sharder, on a cluster of its own", Open: open})
}

const look = `  kubectl get clusterrings
  kubectl get secrets -n team-a --show-labels`

// demo is the cluster with the sharder and the shards in it, and its user.
type demo struct {
	*story.Stage

	*user
	view    *ringview.Cluster
	journal string // the file in which the shards write down their work
	// killed are when shards were killed, by the clock of the journal.
	killed map[string]int64
}

func open(ctx context.Context, s *story.Stage) (*story.Story, error) {
	dir, err := os.MkdirTemp("", "nodekeeper-shard-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{Stage: s, user: &user{api: s.API}, journal: filepath.Join(dir, "journal"), killed: map[string]int64{}}
	t := &story.Story{Steps: d.steps(), Check: d.failure, Terminal: "  export KUBECONFIG=" + s.Plane.Kubeconfig, Look: look, Close: func() {
		d.stop()
		_ = os.RemoveAll(dir)
	}}
	return t, d.open(ctx)
}

func (d *demo) open(ctx context.Context) error {
	if err := crds.Install(ctx, d.Plane.Config); err != nil {
		return err
	}
	d.view = &ringview.Cluster{Client: d.API, Mapper: d.API.RESTMapper(), Prefix: prefix, SharderNamespace: "sharder-system"}
	for _, name := range []string{shardNamespace, objectNamespace} {
		if err := d.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	d.Action(time.Now(), "demo", "ClusterRings are served; starting the sharder")
	p, err := programs.Start("sharder", "sharder-0", d.Plane.Kubeconfig)
	if err != nil {
		return err
	}
	return d.Add(ctx, p)
}

// startShard starts an example-checksum.
func (d *demo) startShard(name string) error {
	p, err := programs.Launch(nil, "example-checksum", name,
		"--kubeconfig="+d.Plane.Kubeconfig, "--ring="+ringName, "--lease-namespace="+shardNamespace, "--namespace="+objectNamespace,
		"--shard-name="+name, "--lease-duration="+leaseDuration.String(), "--work="+work.String(), "--journal="+d.journal)
	if err == nil {
		d.AddUnprobed(p)
	}
	return err
}

// kill ends a shard as kill -9 does.
func (d *demo) kill(name string) (pid int, err error) {
	if pid, err = d.Kill(name); err == nil {
		d.killed[name], err = monotonic()
	}
	return pid, err
}

// untilRing waits until the ring is as asked for.
func (d *demo) untilRing(ctx context.Context, what string, is func(*ringview.Ring) bool) error {
	return d.Until(ctx, func(ctx context.Context) error {
		r, err := d.view.Ring(ctx, ringName)
		if err == nil && !is(r) {
			err = fmt.Errorf("waiting until %s", what)
		}
		return err
	})
}

// untilSettled waits until exactly these shards have slots, each has Secrets once there are some, and
// nothing is left to move.
func (d *demo) untilSettled(ctx context.Context, shards ...string) error {
	return d.Until(ctx, func(ctx context.Context) error {
		r, err := d.view.Ring(ctx, ringName)
		if err != nil {
			return err
		}
		has, err := d.counts(ctx)
		if err != nil {
			return err
		}
		draining := &corev1.SecretList{}
		if err := d.API.List(ctx, draining, client.InNamespace(objectNamespace), client.HasLabels{prefix.DrainLabel(ringName)}); err != nil {
			return err
		}
		var have []string
		for _, m := range r.Members {
			if m.Slots > 0 && m.State == "ready" && (len(has) == 0 || has[m.Name] > 0) {
				have = append(have, m.Name)
			}
		}
		slices.Sort(have)
		left := int(r.Moving+r.Unassigned) + has[""] + len(draining.Items)
		if !slices.Equal(have, shards) || !meta.IsStatusConditionTrue(r.Conditions, "Ready") || left > 0 {
			return fmt.Errorf("%v have slots and Secrets, not %v; %d Secrets are left to assign or to move", have, shards, left)
		}
		return nil
	})
}
