package main

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"nodekeeper.dev/hack/oci"
)

// images packs each service, and the demo, as one index with an image for each architecture.
func (r *release) images(programs []*program) error {
	r.digests = map[string]string{}
	for _, entrypoint := range append([]string{demo}, services...) {
		name := oci.Name(entrypoint)
		var images []v1.Image
		for _, t := range r.architectures {
			img, err := r.image(content(programs, entrypoint, t), name)
			if err != nil {
				return fmt.Errorf("packing %s for %s: %w", entrypoint, t, err)
			}
			images = append(images, img)
		}
		index, err := oci.Index(images...)
		if err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		r.digests[entrypoint] = digest.String()
		file := fmt.Sprintf("%s_%s.tar", name, r.version)
		if err := oci.WriteIndex(filepath.Join(r.out, file), r.registry+"/"+name, r.version, index, images...); err != nil {
			return err
		}
		r.files = append(r.files, file)
	}
	return nil
}

// content returns the programs in the image of a program for one architecture, that program first.
func content(programs []*program, entrypoint string, t target) []*program {
	var found []*program
	for _, name := range contentOf(entrypoint) {
		for _, p := range programs {
			if p.name == name && p.target == t {
				found = append(found, p)
			}
		}
	}
	return found
}

// image returns the image of programs for one architecture, and writes its bill of materials. The
// first program is the one that the image runs.
func (r *release) image(programs []*program, name string) (v1.Image, error) {
	var extra oci.Extra
	if len(programs) > 1 {
		var others []string
		for _, p := range programs[1:] {
			others = append(others, p.path)
		}
		extra = oci.Demo(others)
	}
	var err error
	if extra.Licenses, err = r.texts(programs...); err != nil {
		return nil, err
	}
	t := programs[0].target
	img, err := oci.Build{Architecture: t.arch, Version: r.version, Revision: r.commit, Created: r.created}.Image(programs[0].path, extra)
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	bom, err := r.sbom(r.container(programs, name, digest.String()), programs...)
	if err != nil {
		return nil, err
	}
	return img, r.write(fmt.Sprintf("%s_%s_%s.cdx.json", name, r.version, t), bom)
}
