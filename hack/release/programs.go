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

// program is one that was built.
type program struct {
	name   string
	target target

	path    string               // of the file
	content []byte               // of the file
	info    *buildinfo.BuildInfo // which modules are linked into it
	modules []module             // the same, with their licences
}

// file is the name of its file.
func (p *program) file() string {
	if p.target.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// compile builds a program, and finds out what is in it.
func (r *release) compile(ctx context.Context, p *program) (err error) {
	dir := filepath.Join(r.work, p.target.String())
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	p.path = filepath.Join(dir, p.file())
	if _, err := goCommand(ctx, r.root, p.target, "build", "-trimpath", "-buildvcs=false", "-ldflags="+r.ldflags, "-o", p.path, "./cmd/"+p.name); err != nil {
		return err
	}
	if p.content, err = os.ReadFile(p.path); err != nil {
		return err
	}
	if p.info, err = buildinfo.ReadFile(p.path); err != nil {
		return err
	}
	p.modules, err = r.licences.of(ctx, p)
	return err
}

// goCommand runs go for a target, with nothing from the environment that changes what is built.
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
