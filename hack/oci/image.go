// Package oci packs built programs as container images. It needs no container daemon and no base
// image: an image contains the program, for the demo also the programs that it starts, and in a
// release the licences of the modules linked into them. The same programs give the same images,
// byte for byte.
package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the programs. It does not exist on any machine. deploy/base uses the same value.
const user = "65532:65532"

// Build describes a build. The same build and the same programs give the same images.
type Build struct {
	Architecture, Version, Revision string
	Created                         time.Time
}

// Name returns the name of a program's image, without registry and tag.
func Name(program string) string { return "nodekeeper-" + filepath.Base(program) }

// Extra is what an image can have besides its program.
type Extra struct {
	// Licenses are files by path, in a layer of their own.
	Licenses map[string][]byte
	// Programs are the paths of static programs that the first one starts. With them, the image has a
	// /tmp for their files.
	Programs []string
	// Env and Args are for the program: "KEY=value", and the first arguments.
	Env, Args []string
}

// Demo is what the image of the demo has besides the demo, which starts these programs. Its
// kubeconfig has a fixed path, so that the kubectl in the image finds it.
func Demo(programs []string) Extra {
	return Extra{
		Programs: programs,
		Args:     []string{"-container=nodekeeper-demo"},
		Env:      []string{"PATH=/", "HOME=/tmp", "KUBECONFIG=/tmp/kubeconfig", "KUBEBUILDER_ASSETS=/", "NODEKEEPER_BIN=/"},
	}
}

// ports returns the ports that a service serves: metrics and probes.
func (e Extra) ports() map[string]struct{} {
	if len(e.Programs) > 0 {
		return nil // it is no service
	}
	return map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}}
}

// Image returns the image of a program, which must be static; the cluster provides the API server's
// certificate to the pod.
func (b Build) Image(program string, extra Extra) (v1.Image, error) {
	entrypoint := "/" + filepath.Base(program)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: b.Architecture,
		OS:           "linux",
		Created:      v1.Time{Time: b.Created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         user,
			Entrypoint:   append([]string{entrypoint}, extra.Args...),
			Env:          extra.Env,
			ExposedPorts: extra.ports(),
			Labels: map[string]string{
				"org.opencontainers.image.title":    Name(program),
				"org.opencontainers.image.version":  b.Version,
				"org.opencontainers.image.revision": b.Revision,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describing the image: %w", err)
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	if len(extra.Licenses) > 0 {
		if img, err = b.add(img, "COPY licenses", func(w *tar.Writer) error { return addFiles(w, extra.Licenses) }); err != nil {
			return nil, err
		}
	}
	if len(extra.Programs) > 0 {
		if img, err = b.add(img, "MKDIR /tmp", addTmp); err != nil {
			return nil, err
		}
	}
	for _, file := range append(slices.Clone(extra.Programs), program) {
		if img, err = b.add(img, "COPY /"+filepath.Base(file), func(w *tar.Writer) error { return addProgram(w, file) }); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// add adds a layer to an image.
func (b Build) add(img v1.Image, how string, write func(*tar.Writer) error) (v1.Image, error) {
	layer, err := layerOf(write)
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: b.Created}, CreatedBy: how}})
}

// layerOf returns a layer, without the owners and times of the local files.
func layerOf(write func(*tar.Writer) error) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(write(w), w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// addTmp adds a directory in which any user may create files.
func addTmp(w *tar.Writer) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: time.Unix(0, 0)})
}

func addProgram(w *tar.Writer, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	return addFile(w, filepath.Base(program), 0o755, content)
}

// addFiles adds files with their directories.
func addFiles(w *tar.Writer, files map[string][]byte) error {
	known := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addDirs(w, path.Dir(name), known); err != nil {
			return err
		}
		if err := addFile(w, name, 0o644, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// addDirs adds a directory and its parents, each once: without these entries, some tools create
// them with arbitrary modes.
func addDirs(w *tar.Writer, dir string, known map[string]bool) error {
	if known[dir] {
		return nil
	}
	known[dir] = true
	if err := addDirs(w, path.Dir(dir), known); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
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
