package main

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbom returns the bill of materials of programs, in CycloneDX JSON, from their build information.
// Subject is the component that the document describes: the program itself or an image that
// contains them.
func (r *release) sbom(subject cdx.Component, programs ...*program) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(subject.BOMRef)).URN() // not random
	bom.Metadata = &cdx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &subject}
	var components []cdx.Component
	var refs []string
	for _, m := range modulesOf(programs) {
		// The purl of the standard library has the version without the go of go1.26.
		purl := "pkg:golang/" + m.path + "@" + url.PathEscape(strings.TrimPrefix(m.version, "go"))
		component := cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version, PackageURL: purl, Scope: cdx.ScopeRequired,
			Licenses: &cdx.Licenses{},
		}
		for _, id := range m.ids {
			*component.Licenses = append(*component.Licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
		}
		components = append(components, component)
		refs = append(refs, purl)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// modulesOf returns the modules of programs, each version once, with the licences of all packages
// that any of the programs uses.
func modulesOf(programs []*program) []module {
	var all []module
	at := map[string]int{} // by path and version
	for _, p := range programs {
		for _, m := range p.modules {
			key := m.path + "@" + m.version
			if i, known := at[key]; known {
				ids := slices.Concat(all[i].ids, m.ids)
				slices.Sort(ids)
				all[i].ids = slices.Compact(ids)
				continue
			}
			at[key] = len(all)
			all = append(all, m)
		}
	}
	return all
}

// component describes a program.
func (r *release) component(p *program) cdx.Component {
	version, within := r.versionOf(p), strings.TrimPrefix(strings.TrimPrefix(p.info.Path, p.info.Main.Path), "/")
	purl := strings.TrimSuffix(fmt.Sprintf("pkg:golang/%s@%s?goarch=%s&goos=%s#%s", p.info.Main.Path, version, p.target.arch, p.target.os, within), "#")
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeApplication, Name: p.name, Version: version, PackageURL: purl,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sumOf(p.content)}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
}

// container describes the image of programs for one architecture.
func (r *release) container(programs []*program, name, digest string) cdx.Component {
	purl := fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s&tag=%s", name, url.QueryEscape(digest), programs[0].target.arch, url.QueryEscape(r.registry+"/"+name), r.version)
	var components []cdx.Component
	for _, p := range programs {
		components = append(components, r.component(p))
	}
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeContainer, Name: r.registry + "/" + name, Version: r.version, PackageURL: purl,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Components: &components,
	}
}
