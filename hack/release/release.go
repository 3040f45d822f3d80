package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// release is what is built, and of what.
type release struct {
	root, out                      string
	version, commit, ldflags       string
	homepage, repository, registry string
	created                        time.Time
	architectures, platforms       []target // of the images, and of the plugin

	work     string // a temporary directory for programs
	licences *licences
	digests  map[string]string // of the images' indexes, by program
	files    []string          // in out
}

// target is a platform.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "_" + t.arch }

// services are the programs that run in a cluster: each has an image.
var services = []string{"watcher", "processor", "webhook", "sharder"}

// plugin is the program that people run.
const plugin = "kubectl-nodekeeper"

// build builds everything. It fails rather than to leave something out.
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
	if err := r.chart(ctx); err != nil {
		return err
	}
	return r.sums()
}

// programs builds every program for every target, two at a time: the linker needs the memory.
func (r *release) programs(ctx context.Context) ([]*program, error) {
	var all []*program
	for _, t := range r.architectures {
		for _, name := range services {
			all = append(all, &program{name: name, target: t})
		}
	}
	for _, t := range r.platforms {
		all = append(all, &program{name: plugin, target: t})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, p := range all {
		group.Go(func() error {
			if err := r.compile(ctx, p); err != nil {
				return fmt.Errorf("building %s for %s: %w", p.name, p.target, err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// sumsFile has the checksums of all other files, in the form of sha256sum.
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
