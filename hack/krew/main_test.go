package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestManifestTellsOfTheArchive packs the plugin for this machine.
func TestManifestTellsOfTheArchive(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	dir := t.TempDir()
	require.NoError(t, run("v1.2.3", "https://example.com/v1.2.3/", dir, []string{runtime.GOOS + "/" + runtime.GOARCH}))

	text, err := os.ReadFile(filepath.Join(dir, "nodekeeper.yaml"))
	require.NoError(t, err)
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &manifest))
	assert.Equal(t, "nodekeeper", manifest.Metadata.Name)
	assert.Equal(t, "v1.2.3", manifest.Spec.Version)
	require.Len(t, manifest.Spec.Platforms, 1)
	p := manifest.Spec.Platforms[0]
	archive := filepath.Base(p.URI)
	assert.Equal(t, "https://example.com/v1.2.3/"+archive, p.URI)

	content, err := os.ReadFile(filepath.Join(dir, archive))
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	assert.Equal(t, hex.EncodeToString(sum[:]), p.SHA256)
	assert.Equal(t, map[string]bool{p.Bin: true, "kubectl_complete-nodekeeper": true, "LICENSE": false}, filesOf(t, filepath.Join(dir, archive)))
}

// filesOf returns the files of an archive, and whether they can be executed.
func filesOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]bool{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		files[header.Name] = header.Mode&0o100 != 0
	}
}

func TestVersionAndURLAreNeeded(t *testing.T) {
	assert.ErrorContains(t, run("1.2.3", "https://example.com", t.TempDir(), nil), "v1.2.3")
	assert.ErrorContains(t, run("v1.2.3", "", t.TempDir(), nil), "-url")
}
