package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// assetsEnv names the directory of the control plane, and the Makefile always sets it.
const assetsEnv = "KUBEBUILDER_ASSETS"

// controlPlane is where a clone has what takes the longest to build.
var controlPlane = []string{filepath.Join("bin", "controlplane", "etcd"), filepath.Join("bin", "controlplane", "kube-apiserver")}

// takeControlPlane copies the control plane into the clone. If none is here, or one that is not
// fresh, the clone builds it, as that of a newcomer does.
func takeControlPlane(ctx context.Context, w io.Writer, root, clone string) (builds bool, err error) {
	own := filepath.Join(root, filepath.Dir(controlPlane[0]))
	dir := cmp.Or(os.Getenv(assetsEnv), own)
	if dir == own && !isFresh(ctx, root) {
		say(w, "no control plane is here: the clone builds it")
		return true, ctx.Err()
	}
	say(w, "the clone gets the control plane in %s", dir)
	for _, file := range controlPlane {
		if err := copyFile(filepath.Join(dir, filepath.Base(file)), filepath.Join(clone, file)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// isFresh reports whether make would not build the control plane of this repository.
func isFresh(ctx context.Context, root string) bool {
	cmd := exec.CommandContext(ctx, "make", append([]string{"--question"}, controlPlane...)...)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "MAKE") })
	return cmd.Run() == nil
}

// handOver copies the control plane to this repository if the clone has built it.
func handOver(clone, root string, built bool) error {
	if !built {
		return nil
	}
	for _, file := range controlPlane {
		if err := copyFile(filepath.Join(clone, file), filepath.Join(root, file)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file. The time of the copy is now, so make finds it fresh.
func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	_, err = io.Copy(target, source)
	return err
}
