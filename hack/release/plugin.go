package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed krew*.yaml
var krewManifests embed.FS

// completion returns the path of the script that kubectl runs to complete the arguments of a
// plugin.
func completion(plugin string) string {
	return path.Join(packageOf(plugin), "kubectl_complete-"+strings.TrimPrefix(plugin, "kubectl-"))
}

// archives packs each plugin for each platform, and writes the Krew manifests.
func (r *release) archives(programs []*program) error {
	for name, manifest := range plugins {
		if err := r.archivesOf(name, manifest, programs); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) archivesOf(plugin, krewFile string, programs []*program) error {
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
		bom, err := r.sbom(r.component(p), p)
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("%s_%s_%s.cdx.json", p.name, r.version, p.target), bom); err != nil {
			return err
		}
		manifest.Platforms = append(manifest.Platforms, platform{p.target.os, p.target.arch, p.file(), name, sumOf(content)})
	}
	text, err := template.ParseFS(krewManifests, krewFile)
	if err != nil {
		return err
	}
	var filled bytes.Buffer
	if err := text.Execute(&filled, manifest); err != nil {
		return err
	}
	return r.write(krewFile, filled.Bytes())
}

// archive returns the archive of a plugin: the program, its completion and our licence at the top,
// and the other licences below.
func (r *release) archive(p *program) (name string, content []byte, err error) {
	texts, err := r.texts(p)
	if err != nil {
		return "", nil, err
	}
	script, err := os.ReadFile(filepath.Join(r.root, completion(p.name)))
	if err != nil {
		return "", nil, err
	}
	files := map[string]archived{
		p.file():                      {p.content, true},
		path.Base(completion(p.name)): {script, true},
		"LICENSE":                     {texts["licenses/LICENSE"], false},
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
