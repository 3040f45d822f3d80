// Command controlplane puts etcd, kube-apiserver and kubectl into a directory, for the tests and the
// demos (make controlplane). It downloads the archive that envtest publishes. If it cannot, or if it
// is told to (make controlplane CONTROLPLANE=build), it builds the programs from the Go modules that
// go.mod pins.
//
// envtest.sum has the SHA-512 of the archive of each platform, and nothing else is unpacked. Other
// platforms are built. envtest publishes few patch releases, so what is downloaded can be of another
// patch release than what is built. This pins one, in the root of the repository:
//
//	curl -fsSL https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml |
//		awk '$1 ~ /^envtest-v1\.36\.2-(linux|darwin)-(amd64|arm64)\.tar\.gz:$/ {name = $1}
//			$1 == "hash:" && name {sub(":", "", name); print $2 "  " name; name = ""}' >hack/controlplane/envtest.sum
//
// Only complete programs get into the directory, by renaming, so that other runs and whatever uses it
// do no harm, and an interrupted run changes nothing.
package main

import (
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
	"strings"
	"syscall"
	"time"
)

// buildTime is how long a build takes on two cores, with nothing in Go's build cache.
const buildTime = "five minutes"

//go:embed envtest.sum
var sums string

// programs get into the directory in this order. make looks at the time of the last one.
var programs = []string{"kubectl", "etcd", "kube-apiserver"}

// source puts all programs into a directory, which is there.
type source func(ctx context.Context, dir string) error

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	dir := flag.String("o", filepath.Join("bin", "controlplane"), "`directory` of the programs")
	onlyBuild := flag.Bool("build", false, "build the programs, and download nothing")
	flag.Parse()
	d := download{
		from: releases, sums: sums, platform: runtime.GOOS + "-" + runtime.GOARCH, patience: patience, out: os.Stderr,
	}
	first := d.get
	if *onlyBuild {
		first = func(context.Context, string) error { return errors.New("as requested") }
	}
	err := supply(ctx, *dir, first, build, os.Stderr)
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// supply fills the directory from the first source, or, if that fails, from the second one.
func supply(ctx context.Context, dir string, first, second source, out io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if why := first(ctx, temp); why != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintf(out, "controlplane: building etcd, kube-apiserver and kubectl, which takes %s on two cores, once: %v\n", buildTime, why)
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

// build builds the programs from the modules that go.mod pins. It runs in the root of the repository.
func build(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	listed, err := command(ctx, "list", "-m", "-f={{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return err
	}
	version := strings.TrimSpace(string(listed))
	part := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const stamp = " -X k8s.io/component-base/version."
	flags := "-ldflags=-s -w" + stamp + "gitVersion=" + version + stamp + "gitTreeState=clean" + stamp + "gitMajor=" + part[0] + stamp + "gitMinor=" + part[1]
	for name, pkg := range map[string]string{
		"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "kubectl": "k8s.io/kubernetes/cmd/kubectl",
	} {
		if err := command(ctx, "build", "-trimpath", "-buildvcs=false", flags, "-o", filepath.Join(dir, name), pkg).Run(); err != nil {
			return err
		}
	}
	return nil
}

// command is a Go command in this module.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append([]string{"-C", filepath.Join("hack", "controlplane")}, args...)...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it removes what is temporary
	return cmd
}
