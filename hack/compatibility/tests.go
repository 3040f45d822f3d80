package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tests are the tests of a product that talk to an API server.
type tests struct {
	dir      string   // with the module at the root of the repository
	packages []string // patterns of the packages that may have some
	flags    []string // of go test
	chart    string   // the test in test/helm that installs the chart of the product
	problems io.Writer
	log      io.Writer // gets the output of go test -json
}

// controlPlane is the package with which tests start an API server, in a module.
const controlPlane = "/test/controlplane"

// isNoTest matches packages that test nodekeeper, and not the API server: benchmarks and the
// robustness suite.
var isNoTest = regexp.MustCompile(`/test/(bench|robustness)$`)

// run runs the tests and adds them to a result. A test that fails is no error.
func (t *tests) run(ctx context.Context, r *result) error {
	packages, err := t.onAPIServer(ctx)
	if err != nil {
		return err
	}
	ran := outcomes{}
	err = errors.Join(
		t.goTest(ctx, ran, t.dir, packages...),
		t.goTest(ctx, ran, filepath.Join(t.dir, "test", "helm"), "-run=^"+t.chart+"$", "."))
	if err != nil {
		return err
	}
	if missing := ran.missing(packages, t.chart); len(missing) > 0 {
		return fmt.Errorf("go test has not run %s: nothing is stored", strings.Join(missing, ", "))
	}
	r.count(ran)
	return nil
}

// onAPIServer returns the packages whose tests import the package that starts an API server,
// directly or not.
func (t *tests) onAPIServer(ctx context.Context) ([]string, error) {
	const format = `{{if .ForTest}}{{.ForTest}}{{range .Deps}} {{.}}{{end}}{{end}}`
	listed, err := output(ctx, t.problems, "go", append([]string{"-C", t.dir, "list", "-test", "-f", format}, t.packages...)...)
	if err != nil {
		return nil, err
	}
	isOne := func(path string) bool { return strings.HasSuffix(path, controlPlane) }
	var packages []string
	for line := range strings.Lines(listed) {
		tested, needs, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !isOne(tested) && !isNoTest.MatchString(tested) && slices.ContainsFunc(strings.Fields(needs), isOne) {
			packages = append(packages, tested)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// goTest runs go test in a directory, and adds how the tests ended.
func (t *tests) goTest(ctx context.Context, ran outcomes, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"-C", dir, "test", "-count=1", "-json"}, t.flags, args)...)
	cmd.Stderr = t.problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := ran.read(io.TeeReader(out, t.log))
	_, _ = io.Copy(io.Discard, out) // what follows an output that cannot be read
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // tests failed, or missing finds what has not run
	}
	return errors.Join(failed, err)
}

// output returns what a program prints.
func output(ctx context.Context, problems io.Writer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// testedCommit returns the commit that is checked out. It ends in -dirty if something besides the
// results is not committed.
func testedCommit(ctx context.Context) (string, error) {
	commit, err := output(ctx, os.Stderr, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := output(ctx, os.Stderr, "git", "status", "--porcelain", "--", ".", ":!"+resultsFile, ":!"+page)
	if err != nil || changed == "" {
		return commit, err
	}
	return commit + "-dirty", nil
}
