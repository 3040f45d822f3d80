package main

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/hack/oci"
)

// file returns the file of an index with two images of a program with this content, and its digest.
func file(t *testing.T, repository, content string) (path, digest string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "watcher")
	require.NoError(t, os.WriteFile(program, []byte(content), 0o600))
	var images []v1.Image
	for _, architecture := range []string{"amd64", "arm64"} {
		img, err := oci.Build{Architecture: architecture}.Image(program, oci.Extra{Licenses: map[string][]byte{"licenses/a/LICENSE": []byte("text")}})
		require.NoError(t, err)
		images = append(images, img)
	}
	index, err := oci.Index(images...)
	require.NoError(t, err)
	hash, err := index.Digest()
	require.NoError(t, err)
	path = filepath.Join(dir, "watcher.tar")
	require.NoError(t, oci.WriteIndex(path, repository, "v1", index, images...))
	return path, hash.String()
}

func TestImagesArePublishedOnce(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/nodekeeper-watcher"
	path, digest := file(t, repository, "a program")
	for range 2 { // a retry, as after a lost response
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), []string{path}, &out))
		assert.Equal(t, repository+"@"+digest+"\n", out.String())
	}
	tag, err := name.NewTag(repository + ":v1")
	require.NoError(t, err)
	index, err := remote.Index(tag)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	assert.Len(t, manifest.Manifests, 2)

	another, _ := file(t, repository, "another program")
	require.ErrorContains(t, run(t.Context(), []string{another}, io.Discard), "already exists with the digest "+digest)
	index, err = remote.Index(tag)
	require.NoError(t, err)
	got, err := index.Digest()
	require.NoError(t, err)
	assert.Equal(t, digest, got.String())
}

func TestNoFileIsAnError(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), nil, io.Discard), "files of the images")
	require.ErrorContains(t, run(t.Context(), []string{filepath.Join(t.TempDir(), "x.tar")}, io.Discard), "no such file")
}
