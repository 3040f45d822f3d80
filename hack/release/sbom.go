package main

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbom returns the bill of materials of a program, in CycloneDX JSON, from its build information.
// Subject is the component that the document describes: the program itself or an image that
// contains it.
func (r *release) sbom(p *program, subject cdx.Component) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(subject.BOMRef)).URN() // not random
	bom.Metadata = &cdx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &subject}
	var components []cdx.Component
	var refs []string
	for _, m := range p.modules {
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

// component describes a program.
func (r *release) component(p *program) cdx.Component {
	purl := fmt.Sprintf("pkg:golang/%s@%s?goarch=%s&goos=%s#%s", p.info.Main.Path, r.version, p.target.arch, p.target.os, packageOf(p.name))
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeApplication, Name: p.name, Version: r.version, PackageURL: purl,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sumOf(p.content)}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
}

// container describes the image of a program for one architecture.
func (r *release) container(p *program, name, digest string) cdx.Component {
	purl := fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s&tag=%s", name, url.QueryEscape(digest), p.target.arch, url.QueryEscape(r.registry+"/"+name), r.version)
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeContainer, Name: r.registry + "/" + name, Version: r.version, PackageURL: purl,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Components: &[]cdx.Component{r.component(p)},
	}
}
