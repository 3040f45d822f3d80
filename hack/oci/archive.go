package oci

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteImage writes an image like docker save: an OCI image layout in a tar, with a manifest.json
// for tools that do not read layouts (docker load where containerd does not store the images,
// kind).
func WriteImage(path, name, tag string, img v1.Image) error {
	manifest, err := legacyManifest(name, tag, img)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	return write(path, name, tag, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}}, []blobs{img}, manifest)
}

// Index returns an index of a program's images, one for each architecture, in this order.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	return index, nil
}

// WriteIndex writes an index with its images as an OCI image layout in a tar, for tools that copy images to a registry.
func WriteIndex(path, name, tag string, index v1.ImageIndex, images ...v1.Image) error {
	parts := []blobs{indexBlobs{index}}
	for _, img := range images {
		parts = append(parts, img)
	}
	return write(path, name, tag, mutate.IndexAddendum{Add: index}, parts, nil)
}

// blobs is implemented by images and indexes.
type blobs interface {
	Digest() (v1.Hash, error)
	RawManifest() ([]byte, error)
	ConfigName() (v1.Hash, error)
	RawConfigFile() ([]byte, error)
	Layers() ([]v1.Layer, error)
}

// indexBlobs is an index, which has no configuration and no layers.
type indexBlobs struct{ v1.ImageIndex }

func (indexBlobs) ConfigName() (v1.Hash, error)   { return v1.Hash{}, nil }
func (indexBlobs) RawConfigFile() ([]byte, error) { return nil, nil }
func (indexBlobs) Layers() ([]v1.Layer, error)    { return nil, nil }

// write writes a layout with one named image or index.
func write(path, name, tag string, top mutate.IndexAddendum, parts []blobs, legacy []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	// Use the full name, as Docker and the kubelet expand the short one.
	full, err := reference.ParseDockerRef(name + ":" + tag)
	if err != nil {
		return err
	}
	top.Annotations = map[string]string{
		"io.containerd.image.name":          full.String(),
		"org.opencontainers.image.ref.name": tag,
	}
	rawIndex, err := mutate.AppendManifests(empty.Index, top).RawManifest()
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", rawIndex},
		{"manifest.json", legacy},
	} {
		if len(file.content) == 0 {
			continue
		}
		if err := addFile(w, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	known := map[v1.Hash]bool{}
	for _, part := range parts {
		if err := addBlobs(w, part, known); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return w.Close()
}

// legacyManifest returns the manifest.json that docker save writes for tools that do not read
// layouts. It lists the paths of the parts of the image.
func legacyManifest(name, tag string, img v1.Image) ([]byte, error) {
	config, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	entry := tarball.Descriptor{Config: blobPath(config), RepoTags: []string{name + ":" + tag}}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		entry.Layers = append(entry.Layers, blobPath(digest))
	}
	return json.Marshal(tarball.Manifest{entry})
}

// addBlobs adds the manifest, the configuration and the layers, except known ones.
func addBlobs(w *tar.Writer, part blobs, known map[v1.Hash]bool) error {
	add := func(digest func() (v1.Hash, error), content func() ([]byte, error)) error {
		hash, err := digest()
		if err != nil || known[hash] || hash == (v1.Hash{}) {
			return err
		}
		known[hash] = true
		blob, err := content()
		if err != nil {
			return err
		}
		return addFile(w, blobPath(hash), 0o644, blob)
	}
	if err := add(part.Digest, part.RawManifest); err != nil {
		return err
	}
	if err := add(part.ConfigName, part.RawConfigFile); err != nil {
		return err
	}
	layers, err := part.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		if err := add(layer.Digest, func() ([]byte, error) { return compressed(layer) }); err != nil {
			return err
		}
	}
	return nil
}

func compressed(layer v1.Layer) (content []byte, err error) {
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

func blobPath(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
