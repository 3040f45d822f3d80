package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const program = "the bytes of a program"

// packed returns the path of a program's image, where the program has these permissions and this
// time on the developer's machine.
func packed(t *testing.T, mode os.FileMode, modified time.Time) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "watcher")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	require.NoError(t, os.Chmod(file, mode))
	require.NoError(t, os.Chtimes(file, modified, modified))
	var out bytes.Buffer
	require.NoError(t, run([]string{
		"-arch=arm64", "-version=v1.2.3", "-revision=abc", "-created=1700000000", "-o=" + dir, file,
	}, &out))
	path := filepath.Join(dir, "nodekeeper-watcher.tar")
	assert.Contains(t, out.String(), path+"  nodekeeper-watcher:dev  linux/arm64  sha256:")
	return path
}

func TestTheSameProgramGivesTheSameImage(t *testing.T) {
	one, err := os.ReadFile(packed(t, 0o700, time.Now()))
	require.NoError(t, err)
	another, err := os.ReadFile(packed(t, 0o755, time.Unix(1e9, 0)))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(one, another), "the archives differ")
}

func TestImageIsTheProgramAlone(t *testing.T) {
	img := fromDockerArchive(t, packed(t, 0o755, time.Now()))
	require.NoError(t, validate.Image(img))
	config, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, &v1.Platform{OS: "linux", Architecture: "arm64"}, config.Platform())
	assert.Equal(t, time.Unix(1700000000, 0).UTC(), config.Created.UTC())
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, []string{"/watcher"}, config.Config.Entrypoint)
	assert.Equal(t, "v1.2.3", config.Config.Labels["org.opencontainers.image.version"])
	assert.Equal(t, "abc", config.Config.Labels["org.opencontainers.image.revision"])

	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := layers[0].Uncompressed()
	require.NoError(t, err)
	files := tar.NewReader(content)
	header, err := files.Next()
	require.NoError(t, err)
	assert.Equal(t, "watcher", header.Name)
	assert.Equal(t, int64(0o755), header.Mode)
	got, err := io.ReadAll(files)
	require.NoError(t, err)
	assert.Equal(t, program, string(got))
	_, err = files.Next()
	assert.ErrorIs(t, err, io.EOF)
}

// TestImageOfTheDemoHasWhatItStarts: the demo, its programs, a directory for their files, the
// licence, and a list of the linked modules.
func TestImageOfTheDemoHasWhatItStarts(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable() // a program with a list of its modules
	require.NoError(t, err)
	for _, file := range []string{"demo", "etcd"} {
		require.NoError(t, os.Symlink(self, filepath.Join(dir, file)))
	}
	license := filepath.Join("..", "..", "LICENSE")
	require.NoError(t, run([]string{"-demo", "-license=" + license, "-arch=amd64", "-o=" + dir, filepath.Join(dir, "demo"), filepath.Join(dir, "etcd")}, io.Discard))
	img := fromDockerArchive(t, filepath.Join(dir, "nodekeeper-demo.tar"))
	require.NoError(t, validate.Image(img))
	config, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, []string{"/demo", "-container=nodekeeper-demo"}, config.Config.Entrypoint)
	assert.Contains(t, config.Config.Env, "PATH=/")
	modes, texts := map[string]int64{}, map[string]string{}
	files := tar.NewReader(mutate.Extract(img))
	for header, err := files.Next(); !errors.Is(err, io.EOF); header, err = files.Next() {
		require.NoError(t, err)
		modes[header.Name] = header.Mode
		if strings.HasPrefix(header.Name, "licenses/") {
			text, err := io.ReadAll(files)
			require.NoError(t, err)
			texts[header.Name] = string(text)
		}
	}
	assert.Equal(t, map[string]int64{
		"tmp": 0o1777, "demo": 0o755, "etcd": 0o755, "licenses": 0o755, "licenses/LICENSE": 0o644, "licenses/modules.txt": 0o644,
	}, modes)
	apache, err := os.ReadFile(license)
	require.NoError(t, err)
	assert.Equal(t, string(apache), texts["licenses/LICENSE"])
	assert.Contains(t, texts["licenses/modules.txt"], "\n/etcd: nodekeeper.dev/hack/images")
	assert.Contains(t, texts["licenses/modules.txt"], "\n\tgithub.com/google/go-containerregistry v")
}

// TestBothFormsHoldTheSameImage compares the form that containerd reads with the form that docker
// load reads.
func TestBothFormsHoldTheSameImage(t *testing.T) {
	path := packed(t, 0o755, time.Now())
	index, err := layout.ImageIndexFromPath(unpacked(t, path))
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	full := manifest.Manifests[0].Annotations["io.containerd.image.name"]
	assert.True(t, strings.HasSuffix(full, "/library/nodekeeper-watcher:dev"), full)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	mediaType, err := img.MediaType()
	require.NoError(t, err)
	assert.Equal(t, types.OCIManifestSchema1, mediaType)
	want, err := img.ConfigName()
	require.NoError(t, err)
	got, err := fromDockerArchive(t, path).ConfigName()
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestBadInputIsReported(t *testing.T) {
	for what, tc := range map[string]struct {
		args []string
		want string
	}{
		"no architecture": {[]string{"watcher"}, "-arch"},
		"no program":      {[]string{"-arch=amd64"}, "files of the programs"},
		"no such program": {[]string{"-arch=amd64", filepath.Join(t.TempDir(), "watcher")}, "no such file"},
		"no licence":      {[]string{"-demo", "-arch=amd64", "-license=" + filepath.Join(t.TempDir(), "none"), "demo"}, "none: no such file"},
		"no Go program":   {[]string{"-demo", "-arch=amd64", "-license=main.go", "main.go"}, "modules of main.go"},
		"no time":         {[]string{"-arch=amd64", "-created=today", "watcher"}, "-created"},
	} {
		t.Run(what, func(t *testing.T) { assert.ErrorContains(t, run(tc.args, io.Discard), tc.want) })
	}
}

func fromDockerArchive(t *testing.T, path string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(strings.TrimSuffix(filepath.Base(path), ".tar") + ":dev")
	require.NoError(t, err)
	img, err := tarball.ImageFromPath(path, &tag)
	require.NoError(t, err)
	return img
}

// unpacked returns a directory with the content of an archive.
func unpacked(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	dir := t.TempDir()
	for files := tar.NewReader(f); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		require.NoError(t, err)
		content, err := io.ReadAll(files)
		require.NoError(t, err)
		file := filepath.Join(dir, header.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, content, 0o600))
	}
}
