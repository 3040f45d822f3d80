package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}
