package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/test/controlplane"
)

// The namespaces that nodekeeper's programs use by default.
const (
	transactionNamespace = "node-metadata-transactions"
	metadataNamespace    = "node-metadata"
)

// stage is the cluster with nodekeeper in it, and the user of that cluster.
type stage struct {
	out   *story.Screen
	plane *controlplane.ControlPlane
	api   client.WithWatch // reads and writes the API server itself
	see   *observer
	crew  *crew

	// want is what the story expects of the cluster: the labels that the user last gave each node.
	want map[string]map[string]string
}

// openStage starts everything. The caller must close the stage.
func openStage(ctx context.Context, out *story.Screen) (*stage, error) {
	s := &stage{out: out, want: map[string]map[string]string{}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) open(ctx context.Context) error {
	s.out.Heading("nodekeeper, on a cluster of its own")
	s.out.Say(time.Now(), "demo", "starting etcd and kube-apiserver")
	var err error
	if s.plane, err = controlplane.Start(controlplane.Options{}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // Ctrl-C: a control plane can be stopped only when it has started
	}
	version, err := connect(s)
	if err != nil {
		return err
	}
	s.out.Say(time.Now(), "demo", "kube-apiserver "+version+" serves; starting nodekeeper")
	if s.see, err = observe(ctx, s.api); err != nil {
		return err
	}
	s.crew = &crew{Crew: story.Crew{Out: s.out}, kubeconfig: s.plane.Kubeconfig, hired: map[string]int{}}
	return s.crew.start(ctx, "watcher", "watcher", "processor", "processor")
}

// connect makes the stage's client and returns the version of the API server.
func connect(s *stage) (string, error) {
	cfg := rest.CopyConfig(s.plane.Config)
	cfg.WarningHandler = rest.NoWarnings{}
	var err error
	if s.api, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return "", fmt.Errorf("connecting to the API server: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("connecting to the API server: %w", err)
	}
	version, err := d.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("asking the API server for its version: %w", err)
	}
	return version.GitVersion, nil
}

// close ends everything that runs and waits for it.
func (s *stage) close() error {
	var errs []error
	if s.crew != nil {
		errs = append(errs, s.crew.Stop())
	}
	if s.see != nil {
		s.see.stop()
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop())
	}
	return errors.Join(errs...)
}
