package main

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
)

// writeArchive writes an image as docker save does: an OCI image layout in a tar, and a manifest.json beside it for those that
// do not read layouts (docker load where containerd does not keep the images, kind).
func writeArchive(path, name, tag string, img v1.Image) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	if err := addLayout(w, name, tag, img); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return w.Close()
}

func addLayout(w *tar.Writer, name, tag string, img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	// The full name, as Docker and the kubelet complete the short one.
	full, err := reference.ParseDockerRef(name + ":" + tag)
	if err != nil {
		return err
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform: config.Platform(),
		Annotations: map[string]string{
			"io.containerd.image.name":          full.String(),
			"org.opencontainers.image.ref.name": tag,
		},
	}})
	rawIndex, err := index.RawManifest()
	if err != nil {
		return err
	}
	manifest, err := legacyManifest(name, tag, img)
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", rawIndex},
		{"manifest.json", manifest},
	} {
		if err := addFile(w, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	return addBlobs(w, img)
}

// legacyManifest is what docker save writes for those that do not read layouts: where to find the parts of the image.
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

// addBlobs adds the manifest, the configuration and the layers of the image.
func addBlobs(w *tar.Writer, img v1.Image) error {
	add := func(digest func() (v1.Hash, error), content func() ([]byte, error)) error {
		hash, err := digest()
		if err != nil {
			return err
		}
		blob, err := content()
		if err != nil {
			return err
		}
		return addFile(w, blobPath(hash), 0o644, blob)
	}
	if err := add(img.Digest, img.RawManifest); err != nil {
		return err
	}
	if err := add(img.ConfigName, img.RawConfigFile); err != nil {
		return err
	}
	layers, err := img.Layers()
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
