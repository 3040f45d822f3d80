package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// release holds the parameters and the results of a release.
type release struct {
	root, out                      string
	version, commit, ldflags       string
	homepage, repository, registry string
	created                        time.Time
	architectures, platforms       []target // of the images, and of the plugins

	work     string // a temporary directory for programs
	licences *licences
	digests  map[string]string // digests of the images' indexes, by program
	files    []string          // in out
}

// target is a platform.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

// services are the programs that run in a cluster. Each has an image.
var services = []string{"watcher", "processor", "webhook", "ui", "sharder", "placement"}

// plugins maps the kubectl plugins to the names of their Krew manifests.
var plugins = map[string]string{"kubectl-nodekeeper": "krew.yaml", "kubectl-rings": "krew-rings.yaml"}

// demo is the program of the image that needs no cluster. The image also has the programs that it
// starts.
const demo = "demo"

// controlPlane maps the programs of others in the image of the demo to their packages in the module
// controlPlaneModule.
var controlPlane = map[string]string{
	"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}

// controlPlaneModule is the directory of the module that pins and builds the control plane.
const controlPlaneModule = "hack/controlplane"

// contentOf returns the programs in the image of a program, that program first.
func contentOf(program string) []string {
	if program != demo {
		return []string{program}
	}
	return append([]string{demo, "watcher", "processor", "kubectl-nodekeeper"}, slices.Sorted(maps.Keys(controlPlane))...)
}

// packageOf returns the package of a program of ours, relative to the root of the sources.
func packageOf(program string) string {
	switch program {
	case demo:
		return "test/demo"
	case "sharder", "kubectl-rings":
		return "sharding/cmd/" + program
	case "placement":
		return "placement/cmd/" + program
	}
	return "cmd/" + program
}

// build builds everything. It fails if any part is missing.
func (r *release) build(ctx context.Context) (err error) {
	if entries, err := os.ReadDir(r.out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it first", r.out)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "nodekeeper-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if r.licences, err = newLicences(ctx, r.root); err != nil {
		return err
	}
	programs, err := r.programs(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func([]*program) error{r.images, r.archives} {
		if err := step(programs); err != nil {
			return err
		}
	}
	if err := r.manifests(); err != nil {
		return err
	}
	if err := r.charts(ctx); err != nil {
		return err
	}
	return r.sums()
}

// programs builds every program for every target, and inspects each. Programs of one target are
// built together, as they share most compiled packages.
func (r *release) programs(ctx context.Context) ([]*program, error) {
	var all []*program
	for _, t := range r.targets() {
		var ofTarget []*program
		if slices.Contains(r.architectures, t) {
			for _, name := range append([]string{demo}, services...) {
				ofTarget = append(ofTarget, &program{name: name, target: t})
			}
		}
		if slices.Contains(r.platforms, t) {
			for name := range plugins {
				ofTarget = append(ofTarget, &program{name: name, target: t})
			}
		}
		if err := r.compile(ctx, t, ofTarget); err != nil {
			return nil, fmt.Errorf("building for %s: %w", t, err)
		}
		all = append(all, ofTarget...)
		if slices.Contains(r.architectures, t) {
			foreign, err := r.compileControlPlane(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("building the control plane for %s: %w", t, err)
			}
			all = append(all, foreign...)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2) // go list uses a core
	for _, p := range all {
		group.Go(func() error {
			if err := r.inspect(ctx, p); err != nil {
				return fmt.Errorf("looking into %s for %s: %w", p.name, p.target, err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

// targets returns each target once.
func (r *release) targets() []target {
	all := slices.Clone(r.architectures)
	for _, t := range r.platforms {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// sumsFile contains the checksums of all other files, in the format of sha256sum.
const sumsFile = "SHA256SUMS"

func (r *release) sums() error {
	slices.Sort(r.files)
	var sums strings.Builder
	for _, name := range r.files {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&sums, "%s  %s\n", sumOf(content), name)
	}
	return r.write(sumsFile, []byte(sums.String()))
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
