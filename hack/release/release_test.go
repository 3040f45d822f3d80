package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// full is for make release-check. Without it there is one platform, and the image of the demo has no
// kube-apiserver and no kubectl, which take minutes to compile. etcd needs only that its modules are
// downloaded once. The second build may then reuse packages that the first one compiled into Go's
// cache: this still detects a path or a time in the linked and packed files.
var full = flag.Bool("full", false, "build for all platforms, and the second time without Go's build cache")

const version = "v1.2.3-test"

// arguments returns the arguments for building some sources.
func arguments(root, out string) []string {
	args := []string{
		"-root=" + root, "-o=" + out, "-version=" + version, "-commit=abc", "-created=1700000000",
		"-ldflags=-s -w -X nodekeeper.dev/internal/daemon/version.Version=" + version,
		"-homepage=https://example.com", "-repository=https://example.com/sources", "-registry=registry.example.com/nodekeeper",
	}
	if !*full {
		args = append(args, "-platforms=linux/"+runtime.GOARCH)
	}
	return args
}

// madeIn is the directory of the first build and its sources, once it exists.
var madeIn string

// buildFirst runs the first build, which all tests use.
var buildFirst = sync.OnceValues(func() (out string, err error) {
	if madeIn, err = os.MkdirTemp("", "nodekeeper-release-test-"); err != nil {
		return "", err
	}
	root, err := copyOf("first", madeIn, time.Unix(1e9, 0))
	if err != nil {
		return "", err
	}
	out = filepath.Join(madeIn, "dist")
	return out, run(context.Background(), arguments(root, out), os.Stdout)
})

// TestMain keeps the first build if a test fails, so that differences can be examined.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*full {
		delete(controlPlane, "kube-apiserver")
		delete(controlPlane, "kubectl")
	}
	code := m.Run()
	if code == 0 && madeIn != "" {
		if err := os.RemoveAll(madeIn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// built returns the directory of the first build's files.
func built(t *testing.T) string {
	t.Helper()
	dir, err := buildFirst()
	require.NoError(t, err)
	return dir
}

// copyOf copies the sources known to git into a directory with this name below dir, with the given
// modification time.
func copyOf(name, dir string, modified time.Time) (string, error) {
	from, err := repository.Root()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(context.Background(), "git", "-C", from, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, name)
	for file := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(from, file))
		if errors.Is(err, fs.ErrNotExist) { // deleted and not committed
			continue
		} else if err != nil {
			return "", err
		}
		to := filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600), os.Chtimes(to, modified, modified)); err != nil {
			return "", err
		}
	}
	return root, nil
}

// TestTwoBuildsAreTheSame builds from directories with names of different lengths, whose files have
// different times.
func TestTwoBuildsAreTheSame(t *testing.T) {
	first := built(t)
	dir := t.TempDir()
	root, err := copyOf("another/and-longer/second", dir, time.Now())
	require.NoError(t, err)
	if *full {
		t.Setenv("GOCACHE", filepath.Join(dir, "cache"))
	}
	second := filepath.Join(dir, "dist")
	require.NoError(t, run(t.Context(), arguments(root, second), os.Stdout))
	one, another := filesIn(t, first), filesIn(t, second)
	for name, sum := range one {
		assert.Equal(t, sum, another[name], "%s differs: see %s", name, first)
	}
	assert.Len(t, another, len(one))
	assert.Greater(t, len(one), 15)
}

// filesIn returns the checksums of the files in a directory.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	sums := map[string]string{}
	for _, entry := range entries {
		sums[entry.Name()] = fmt.Sprintf("%x", sha256.Sum256(read(t, dir, entry.Name())))
	}
	return sums
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	require.NoError(t, err)
	return content
}

// TestSumsAreThoseOfAllFiles checks that the sums cover all files, in the format that sha256sum -c
// reads.
func TestSumsAreThoseOfAllFiles(t *testing.T) {
	dir := built(t)
	sums := filesIn(t, dir)
	delete(sums, sumsFile)
	for line := range strings.Lines(string(read(t, dir, sumsFile))) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		assert.Equal(t, sums[name], sum, name)
		delete(sums, name)
	}
	assert.Empty(t, sums, "files without a checksum")
}

// TestNoFileNamesTheBuildMachine checks that no program contains the directory of the sources, or
// a directory of the Go installation.
func TestNoFileNamesTheBuildMachine(t *testing.T) {
	first := built(t)
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT", "GOPATH", "GOMODCACHE", "GOCACHE").Output()
	require.NoError(t, err)
	private := append(strings.Fields(string(out)), filepath.Dir(first))
	for name, programs := range programsIn(t, first) {
		for program, content := range programs {
			for _, dir := range private {
				assert.False(t, bytes.Contains(content, []byte(dir)), "%s in %s names %s", program, name, dir)
			}
		}
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	used := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(used, "old"), nil, 0o600))
	for name, tc := range map[string]struct {
		change, want string
	}{
		"no v":              {"-version=1.2.3", "give one like v1.2.3"},
		"a describe":        {"-version=v1.2", "give one like v1.2.3"},
		"build metadata":    {"-version=v1.2.3+x", "give one like v1.2.3"},
		"no registry":       {"-registry=", "-registry"},
		"no platform":       {"-platforms=linux", "OS/ARCH"},
		"no images":         {"-platforms=darwin/arm64", "one of linux"},
		"a used directory":  {"-o=" + used, "is not empty"},
		"an unknown target": {"-platforms=linux/z80", "building for linux_z80"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(arguments(filepath.Join("..", ".."), filepath.Join(t.TempDir(), "dist")), tc.change)
			assert.ErrorContains(t, run(t.Context(), args, os.Stdout), tc.want)
		})
	}
}
