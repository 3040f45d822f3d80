package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the programs. It is no user of any machine; deploy/base names it too.
const user = "65532:65532"

// build is what the programs were made from and for. The same build and the same programs give the same images.
type build struct {
	architecture, version, revision string
	created                         time.Time
}

// image returns the image of a program: that file and nothing else. It is static, and the cluster gives the
// API server's certificate to the pod.
func (b build) image(program string) (v1.Image, error) {
	entrypoint := "/" + filepath.Base(program)
	layer, err := layerOf(program)
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: b.architecture,
		OS:           "linux",
		Created:      v1.Time{Time: b.created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         user,
			Entrypoint:   []string{entrypoint},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "nodekeeper-" + filepath.Base(program),
				"org.opencontainers.image.version":  b.version,
				"org.opencontainers.image.revision": b.revision,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describing the image: %w", err)
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: b.created}, CreatedBy: "COPY " + entrypoint},
	})
}

// layerOf returns a layer with the program as the one file in it, without the owner, mode and time that it happens to have here.
func layerOf(program string) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := addFile(w, filepath.Base(program), 0o755, content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
