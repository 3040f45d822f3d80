// Command demo shows on a terminal what nodekeeper does (make demo). It starts etcd and
// kube-apiserver, two watchers and two processors, plays a user who labels, deletes and re-creates
// nodes, and prints the events that it sees in the API. It exits with 0 only if every step had the
// expected result.
//
// steps.go has the steps, user.go acts as the user of the cluster and compares it with what the
// user has done, and witness.go prints the events. Package story has the rest of the program.
package main

import (
	"context"
	"fmt"
	"path/filepath"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/story"
)

func main() {
	story.Main(story.Demo{Name: "demo", Title: "nodekeeper, on a cluster of its own", Open: open})
}

// guide has further commands to try, and look those to begin with. %[1]s is a node.
const guide = `

To see the objects themselves:

  kubectl get nodes --show-labels
  kubectl get cm -n node-metadata-transactions -L nodekeeper.dev/type --watch
  kubectl get cm -n node-metadata
  kubectl get cm -n node-metadata %[1]s -o yaml
  kubectl get lease -n node-metadata-transactions --watch

To lose a node and bring it back:

  kubectl label node %[1]s colour=blue
  kubectl delete node %[1]s
  echo '{"apiVersion":"v1","kind":"Node","metadata":{"name":"%[1]s"}}' | kubectl create -f -
  kubectl get node %[1]s --show-labels`

const look = `  kubectl nodekeeper status
  kubectl nodekeeper explain %[1]s
  kubectl nodekeeper ui`

// demo is the cluster with nodekeeper in it, and its user.
type demo struct {
	*story.Stage

	*user
	see *witness
}

func open(ctx context.Context, s *story.Stage) (*story.Story, error) {
	plugin, err := programs.Path("kubectl-nodekeeper")
	if err != nil {
		return nil, err
	}
	kubectl, err := s.Kubectl(filepath.Dir(plugin))
	if err != nil {
		return nil, err
	}
	d := &demo{Stage: s, user: &user{api: s.API, want: map[string]map[string]string{}}, see: newWitness(s.Screen)}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // the events are shown until the end
	t := &story.Story{
		Steps: d.steps(), Figures: d.see.figures, Close: stop,
		Terminal: kubectl, Guide: fmt.Sprintf(guide, worker1), Look: fmt.Sprintf(look, worker1),
	}
	if err := d.see.start(ctx, s.Config); err != nil {
		return t, err
	}
	return t, d.hire(ctx, "watcher-1", "watcher-2", "processor-1", "processor-2")
}

// hire starts programs, side by side, and returns when all are ready.
func (d *demo) hire(ctx context.Context, identities ...string) error {
	var all []*programs.Program
	for _, identity := range identities {
		name, args := "watcher", []string(nil)
		if identity[0] == 'p' {
			name, args = "processor", []string{"--save-delay=0"} // each step shows what the one before saved
		}
		p, err := programs.Start(name, identity, d.Plane.Kubeconfig, args...)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	return d.Add(ctx, all...)
}
