package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	platform = "linux-amd64"
	name     = "envtest-v1.2.3-linux-amd64.tar.gz"
)

// archive returns an envtest archive with these programs. The content of each program is its name.
func archive(t *testing.T, programs ...string) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	entries := tar.NewWriter(zipped)
	require.NoError(t, entries.WriteHeader(&tar.Header{Name: "controller-tools/envtest/", Typeflag: tar.TypeDir, Mode: 0o755}))
	for _, program := range programs {
		require.NoError(t, entries.WriteHeader(&tar.Header{Name: "controller-tools/envtest/" + program, Mode: 0o755, Size: int64(len(program))}))
		_, err := entries.Write([]byte(program))
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(entries.Close(), zipped.Close()))
	return archive.Bytes()
}

// pin returns the envtest.sum of an archive.
func pin(archive []byte) string { return fmt.Sprintf("%x  %s\n", sha512.Sum512(archive), name) }

// serve returns the URL of a server with this handler.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// builds is a source that writes "built" into each program.
func builds(_ context.Context, dir string) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, os.WriteFile(filepath.Join(dir, program), []byte("built"), 0o600))
	}
	return errors.Join(errs...)
}

func buildsNothing(context.Context, string) error { return errors.New("there is no compiler") }

// contents returns the contents of the files of a directory, which must contain only files.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		all[entry.Name()] = string(content)
	}
	return all
}

var (
	downloaded = map[string]string{"kubectl": "kubectl", "etcd": "etcd", "kube-apiserver": "kube-apiserver"}
	built      = map[string]string{"kubectl": "built", "etcd": "built", "kube-apiserver": "built"}
)

func TestProgramsAreDownloaded(t *testing.T) {
	content := archive(t, "kube-apiserver", "etcd", "README", "kubectl")
	var asked string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		_, _ = w.Write(content)
	})
	dir := filepath.Join(t.TempDir(), "bin", "controlplane")
	begin := time.Now().Add(-time.Second)
	var out bytes.Buffer
	d := &download{from: url, sums: "other\n" + pin(content), platform: platform, patience: time.Minute, out: &out}
	require.NoError(t, supply(t.Context(), dir, d.get, buildsNothing, &out))

	assert.Equal(t, downloaded, contents(t, dir))
	assert.Equal(t, "/envtest-v1.2.3/"+name, asked)
	assert.Equal(t, "controlplane: downloading etcd, kube-apiserver and kubectl v1.2.3: "+url+asked+"\n", out.String())
	info, err := os.Stat(filepath.Join(dir, "kube-apiserver"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode(), "it can be executed")
	assert.True(t, info.ModTime().After(begin), "make finds it newer than go.mod")
}

// TestWhatCannotBeDownloadedIsBuilt covers all known ways in which a network, a proxy or a server
// broke downloads.
func TestWhatCannotBeDownloadedIsBuilt(t *testing.T) {
	t.Parallel()
	good := archive(t, programs...)
	write := func(content []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }
	}
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for why, tc := range map[string]struct {
		answer http.HandlerFunc
		sums   string
		want   string
	}{
		"another archive":           {write(archive(t, "etcd")), pin(good), "has the SHA-512"},
		"one bit is another":        {write(append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)), pin(good), "has the SHA-512"},
		"half of it":                {write(good[:len(good)/2]), pin(good), "has the SHA-512"},
		"nothing":                   {write(nil), pin(good), "has the SHA-512"},
		"a page of a proxy":         {write([]byte("<html>Sign in</html>")), pin(good), "has the SHA-512"},
		"it is not there":           {http.NotFound, pin(good), "404 Not Found"},
		"no pin":                    {write(good), "", "envtest.sum has no archive for linux-amd64"},
		"no pin for this platform":  {write(good), regexp.MustCompile("amd64").ReplaceAllString(pin(good), "arm64"), "envtest.sum has no archive"},
		"a pin that is no SHA-512":  {write(good), pin(good)[1:], "envtest.sum has no archive"},
		"the pinned one is too old": {write(archive(t, "etcd", "kube-apiserver")), pin(archive(t, "etcd", "kube-apiserver")), `looking for ["kubectl" "etcd" "kube-apiserver"]: EOF`},
		"the pinned one is no .gz":  {write([]byte("etcd")), pin([]byte("etcd")), "unpacking"},
		"the connection breaks": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99999")
			_, _ = w.Write(good)
		}, pin(good), "unexpected EOF"},
		"it accepts and does not answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, pin(good), "no data for 300ms"},
		"it begins and hangs":            {func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(good[:9]); flush(w); <-r.Context().Done() }, pin(good), "no data for 300ms"},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			patience := time.Minute
			if strings.HasPrefix(tc.want, "no data") {
				patience = 300 * time.Millisecond
			}
			var out bytes.Buffer
			d := &download{from: serve(t, tc.answer), sums: tc.sums, platform: platform, patience: patience, out: &out}
			for dir, before := range map[string]map[string]string{t.TempDir(): {}, t.TempDir(): downloaded} {
				for program, content := range before {
					require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(content), 0o600))
				}
				out.Reset()
				require.ErrorContains(t, supply(t.Context(), dir, d.get, buildsNothing, &out), "there is no compiler")
				assert.Equal(t, before, contents(t, dir), "what was there stays if there is no build, either")

				out.Reset()
				require.NoError(t, supply(t.Context(), dir, d.get, builds, &out))
				assert.Equal(t, built, contents(t, dir))
				assert.Regexp(t, `(?m)^controlplane: building .* `+buildTime+` .*`+regexp.QuoteMeta(tc.want), out.String())
			}
		})
	}
}

func TestUnreachableServerLeadsToABuild(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	var out bytes.Buffer
	d := &download{from: server.URL, sums: pin(nil), platform: platform, patience: time.Minute, out: &out}
	dir := t.TempDir()
	require.NoError(t, supply(t.Context(), dir, d.get, builds, &out))
	assert.Equal(t, built, contents(t, dir))
	assert.Contains(t, out.String(), "connection refused")
}

func TestInterruptLeavesWhatWasThere(t *testing.T) {
	for during, sources := range map[string]struct{ first, second source }{
		"the download": {first: nil, second: builds},
		"the build":    {first: buildsNothing, second: nil},
	} {
		t.Run(during, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, supply(t.Context(), dir, builds, nil, t.Output()))
			ctx, cancel := context.WithCancel(t.Context())
			content := archive(t, programs...)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write(content[:9])
				_ = http.NewResponseController(w).Flush()
				cancel()
				<-r.Context().Done()
			})
			d := &download{from: url, sums: pin(content), platform: platform, patience: time.Minute, out: t.Output()}
			if sources.first == nil {
				sources.first = d.get
			} else {
				sources.second = d.get
			}
			require.Error(t, supply(ctx, dir, sources.first, sources.second, t.Output()))
			assert.Equal(t, built, contents(t, dir))
		})
	}
}

func TestTwoRunsAtOnceDoNoHarm(t *testing.T) {
	content := archive(t, programs...)
	dir := t.TempDir()
	var both, runs sync.WaitGroup
	both.Add(2)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait() // until both runs have started
		_, _ = w.Write(content)
	})
	for range 2 {
		runs.Go(func() {
			d := &download{from: url, sums: pin(content), platform: platform, patience: time.Minute, out: t.Output()}
			assert.NoError(t, supply(t.Context(), dir, d.get, buildsNothing, t.Output()))
		})
	}
	runs.Wait()
	assert.Equal(t, downloaded, contents(t, dir))
}

// TestPinsAreOfTheReleaseThatIsBuilt compares envtest.sum with go.mod: only the patch release may
// differ, and the pages name both.
func TestPinsAreOfTheReleaseThatIsBuilt(t *testing.T) {
	module, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v((\d+\.\d+\.)\d+)`).FindSubmatch(module)
	require.NotNil(t, version)
	line := `[0-9a-f]{128}  envtest-v` + regexp.QuoteMeta(string(version[2])) + `\d+-`
	assert.Regexp(t, `^`+line+`darwin-amd64\.tar\.gz\n`+line+`darwin-arm64\.tar\.gz\n`+line+`linux-amd64\.tar\.gz\n`+line+`linux-arm64\.tar\.gz\n$`, sums)
	pinned := regexp.MustCompile(`-v([0-9.]+)-`).FindAllStringSubmatch(sums, -1)
	assert.Len(t, pinned, 4)
	for _, page := range []string{"development.md", filepath.Join("reference", "compatibility.md")} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		require.NoError(t, err)
		for _, one := range pinned {
			assert.Contains(t, string(text), " "+one[1])
		}
		assert.Contains(t, string(text), " "+string(version[1]))
	}
}
