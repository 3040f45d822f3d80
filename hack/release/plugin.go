package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"text/template"
)

//go:embed krew.yaml
var krewManifest string

// completion is what is in an archive of the plugin besides it and the licences, by its path in the sources.
const completion = "cmd/kubectl-nodekeeper/kubectl_complete-nodekeeper"

// archives packs the plugin for each platform, and writes the manifest by which Krew installs it.
func (r *release) archives(programs []*program) error {
	type platform struct{ OS, Arch, Bin, Archive, SHA256 string }
	manifest := struct {
		Version, URL, Homepage string
		Platforms              []platform
	}{Version: r.version, URL: r.repository + "/releases/download/" + r.version, Homepage: r.homepage}
	for _, p := range programs {
		if p.name != plugin {
			continue
		}
		name, content, err := r.archive(p)
		if err != nil {
			return fmt.Errorf("packing %s for %s: %w", p.name, p.target, err)
		}
		if err := r.write(name, content); err != nil {
			return err
		}
		bom, err := r.sbom(p, r.component(p))
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("%s_%s_%s.cdx.json", p.name, r.version, p.target), bom); err != nil {
			return err
		}
		manifest.Platforms = append(manifest.Platforms, platform{p.target.os, p.target.arch, p.file(), name, sumOf(content)})
	}
	text, err := template.New("manifest").Parse(krewManifest)
	if err != nil {
		return err
	}
	var filled bytes.Buffer
	if err := text.Execute(&filled, manifest); err != nil {
		return err
	}
	return r.write("krew.yaml", filled.Bytes())
}

// archive returns the archive of a plugin: with the program, its completion, our licence beside them, and the others below.
func (r *release) archive(p *program) (name string, content []byte, err error) {
	texts, err := r.texts(p)
	if err != nil {
		return "", nil, err
	}
	script, err := os.ReadFile(filepath.Join(r.root, completion))
	if err != nil {
		return "", nil, err
	}
	files := map[string]archived{
		p.file():              {p.content, true},
		path.Base(completion): {script, true},
		"LICENSE":             {texts["licenses/LICENSE"], false},
	}
	delete(texts, "licenses/LICENSE")
	for name, text := range texts {
		files[name] = archived{text, false}
	}
	name = fmt.Sprintf("%s_%s_%s", p.name, r.version, p.target)
	if p.target.os == "windows" {
		content, err = zipped(files, r.created)
		return name + ".zip", content, err
	}
	content, err = tarGz(files, r.created)
	return name + ".tar.gz", content, err
}
