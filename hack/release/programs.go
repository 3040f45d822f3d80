package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is a built program.
type program struct {
	name   string
	target target

	path    string               // of the file
	content []byte               // of the file
	info    *buildinfo.BuildInfo // the modules linked into it
	modules []module             // the same, with their licences
}

// source returns the directory of the module whose go.mod pins the dependencies of the program, and
// its package there.
func (p *program) source() (dir, pkg string) {
	if foreign, found := controlPlane[p.name]; found {
		return controlPlaneModule, foreign
	}
	return ".", "./" + packageOf(p.name)
}

// versionOf returns the version of a program, which is that of the release unless it is a program
// of others.
func (r *release) versionOf(p *program) string {
	if controlPlane[p.name] != "" {
		return p.info.Main.Version
	}
	return r.version
}

// file returns the name of its file.
func (p *program) file() string {
	if p.target.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// compile builds programs for a target.
func (r *release) compile(ctx context.Context, t target, programs []*program) error {
	dir := filepath.Join(r.work, t.String()) + string(filepath.Separator) // to build several programs, go build needs a directory
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=" + r.ldflags, "-o", dir}
	for _, p := range programs {
		p.path = filepath.Join(dir, p.file())
		args = append(args, "./"+packageOf(p.name))
	}
	_, err := goCommand(ctx, r.root, t, args...)
	return err
}

// compileControlPlane builds the programs of the control plane for a target, from the modules that
// controlPlaneModule pins, as make controlplane does.
func (r *release) compileControlPlane(ctx context.Context, t target) ([]*program, error) {
	builder, dir := filepath.Join(r.work, "controlplane"), filepath.Join(r.work, "controlplane_"+t.String())
	if _, err := goCommand(ctx, filepath.Join(r.root, controlPlaneModule), target{}, "build", "-o", builder, "."); err != nil {
		return nil, err
	}
	var programs []*program
	args := []string{"-build", "-o", dir}
	for _, name := range slices.Sorted(maps.Keys(controlPlane)) {
		programs = append(programs, &program{name: name, target: t, path: filepath.Join(dir, name)})
		args = append(args, name)
	}
	_, err := output(ctx, r.root, t, builder, args...)
	return programs, err
}

// inspect reads the content and the build information of a built program.
func (r *release) inspect(ctx context.Context, p *program) (err error) {
	if p.content, err = os.ReadFile(p.path); err != nil {
		return err
	}
	if p.info, err = buildinfo.ReadFile(p.path); err != nil {
		return err
	}
	p.modules, err = r.licences.of(ctx, p)
	return err
}

// goCommand runs go for a target, without environment variables that affect the build.
func goCommand(ctx context.Context, dir string, t target, args ...string) ([]byte, error) {
	return output(ctx, dir, t, "go", args...)
}

// output runs go, or a program that runs go, and returns what it prints.
func output(ctx context.Context, dir string, t target, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}
