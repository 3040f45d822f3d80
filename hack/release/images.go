package main

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"nodekeeper.dev/hack/oci"
)

// images packs each service as one index with an image for each architecture.
func (r *release) images(programs []*program) error {
	r.digests = map[string]string{}
	for _, service := range services {
		name := oci.Name(service)
		var images []v1.Image
		for _, p := range programs {
			if p.name != service {
				continue
			}
			img, err := r.image(p, name)
			if err != nil {
				return fmt.Errorf("packing %s for %s: %w", p.name, p.target, err)
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
		r.digests[service] = digest.String()
		file := fmt.Sprintf("%s_%s.tar", name, r.version)
		if err := oci.WriteIndex(filepath.Join(r.out, file), r.registry+"/"+name, r.version, index, images...); err != nil {
			return err
		}
		r.files = append(r.files, file)
	}
	return nil
}

// image returns the image of a service for one architecture, and writes its bill of materials.
func (r *release) image(p *program, name string) (v1.Image, error) {
	texts, err := r.texts(p)
	if err != nil {
		return nil, err
	}
	img, err := oci.Build{Architecture: p.target.arch, Version: r.version, Revision: r.commit, Created: r.created}.Image(p.path, oci.Extra{Licenses: texts})
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	bom, err := r.sbom(p, r.container(p, name, digest.String()))
	if err != nil {
		return nil, err
	}
	return img, r.write(fmt.Sprintf("%s_%s_%s.cdx.json", name, r.version, p.target), bom)
}
