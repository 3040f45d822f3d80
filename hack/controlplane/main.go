// Command controlplane installs etcd, kube-apiserver and kubectl into a directory, for the tests
// and the demos (make controlplane). It downloads the archive that envtest publishes. If the
// download fails, or on request (make controlplane CONTROLPLANE=build), it builds the programs from
// the Go modules pinned in go.mod. With -kube, it builds them from another release of Kubernetes,
// of those in kubernetes.sum (make controlplane KUBE=1.30). Arguments limit it to some of the
// programs.
//
// envtest.sum contains the SHA-512 of the archive for each platform, and no other archive is
// unpacked. For other platforms, the programs are built. envtest publishes few patch releases, so
// the patch release of a download can differ from that of a build. To pin a release, run this in
// the root of the repository:
//
//	curl -fsSL https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml |
//		awk '$1 ~ /^envtest-v1\.37\.0-(linux|darwin)-(amd64|arm64)\.tar\.gz:$/ {name = $1}
//			$1 == "hash:" && name {sub(":", "", name); print $2 "  " name; name = ""}' >hack/controlplane/envtest.sum
//
// Only complete programs enter the directory, by renaming. Concurrent runs and users of the
// directory are therefore safe, and an interrupted run changes nothing.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// buildTime is the duration of a build on two cores, with an empty Go build cache.
const buildTime = "five minutes"

//go:embed envtest.sum
var sums string

// programs are installed in this order. make checks the modification time of the last one.
var programs = []string{"kubectl", "etcd", "kube-apiserver"}

// module is the directory of this module, and etcdPackage the package of etcd.
const (
	module      = "hack/controlplane"
	etcdPackage = "go.etcd.io/etcd/server/v3"
)

// targetPlatform is what the programs are for. Like a build, it follows the variables of the go
// command.
func targetPlatform() string {
	return cmp.Or(os.Getenv("GOOS"), runtime.GOOS) + "-" + cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH)
}

// source writes all programs into an existing directory, whose path is absolute.
type source func(ctx context.Context, dir string) error

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	dir := flag.String("o", filepath.Join("bin", "controlplane"), "`directory` of the programs")
	onlyBuild := flag.Bool("build", false, "build the programs, and download nothing")
	kube := flag.String("kube", "", "build the programs of this `minor` release of Kubernetes, such as 1.30")
	flag.Parse()
	if err := choose(flag.Args()); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(2)
	}
	d := download{
		from: releases, sums: sums, platform: targetPlatform(), patience: patience, out: os.Stderr,
	}
	first, second := d.get, build
	if *onlyBuild || *kube != "" {
		first = func(context.Context, string) error { return errors.New("as requested") }
	}
	var err error
	if *kube != "" {
		var r release
		r, err = releaseOf(*kube, kubernetesSums)
		second = r.build
	}
	if err == nil {
		err = supply(ctx, *dir, first, second, os.Stderr)
	}
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// choose restricts the programs to those that the arguments name, if any.
func choose(args []string) error {
	for _, name := range args {
		if !slices.Contains(programs, name) {
			return fmt.Errorf("there is no program %q: name some of %s", name, strings.Join(programs, ", "))
		}
	}
	if len(args) > 0 {
		programs = args
	}
	return nil
}

// supply fills the directory from the first source or, if that fails, from the second.
func supply(ctx context.Context, dir string, first, second source, out io.Writer) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if why := first(ctx, temp); why != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(out, "controlplane: building %s, which takes up to %s on two cores, once: %v\n", strings.Join(programs, ", "), buildTime, why)
		if err := second(ctx, temp); err != nil {
			return fmt.Errorf("building the control plane: %w", err)
		}
	}
	for _, name := range programs {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		path, now := filepath.Join(temp, name), time.Now()
		if err := errors.Join(os.Chtimes(path, now, now), os.Rename(path, filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs from the modules pinned in go.mod. It runs in the root of the
// repository.
func build(ctx context.Context, dir string) error {
	listed, err := command(ctx, "list", "-m", "-f={{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return err
	}
	return buildPrograms(ctx, strings.TrimSpace(string(listed)), module, dir, map[string]string{
		"etcd": etcdPackage, "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "kubectl": "k8s.io/kubernetes/cmd/kubectl",
	})
}

// buildPrograms builds programs from packages of a module in a directory or of its dependencies. It
// gives them the version of Kubernetes.
func buildPrograms(ctx context.Context, version, in, dir string, packages map[string]string, flags ...string) error {
	const variable = " -X k8s.io/component-base/version."
	part := strings.Split(strings.TrimPrefix(version, "v"), ".")
	stamp := "-ldflags=-s -w" + variable + "gitVersion=" + version + variable + "gitTreeState=clean" + variable + "gitMajor=" + part[0] + variable + "gitMinor=" + part[1]
	for name, pkg := range packages {
		if !slices.Contains(programs, name) {
			continue
		}
		args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", stamp, "-o", filepath.Join(dir, name)}, flags, []string{pkg})
		if err := commandIn(ctx, in, args...).Run(); err != nil {
			return err
		}
	}
	return nil
}

// command returns a Go command in this module.
func command(ctx context.Context, args ...string) *exec.Cmd { return commandIn(ctx, module, args...) }

// commandIn returns a Go command in a directory.
func commandIn(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it then removes temporary files
	return cmd
}
