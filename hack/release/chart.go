package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"nodekeeper.dev/hack/helm"
)

// charts packs the Helm charts, and checks that each installs the same objects as the manifests of
// the release.
func (r *release) charts(ctx context.Context) error {
	for _, p := range products {
		if err := r.chart(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (p product) chartDir(root string) string { return filepath.Join(root, p.deploy, "chart", p.chart) }

func (r *release) chart(ctx context.Context, p product) error {
	files := map[string]archived{}
	source := os.DirFS(p.chartDir(r.root))
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		if content, err = r.chartFile(p, name, content); err != nil {
			return fmt.Errorf("%s of the chart %s: %w", name, p.chart, err)
		}
		files[path.Join(p.chart, name)] = archived{content, false}
		return nil
	})
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files[path.Join(p.chart, "LICENSE")] = archived{license, false}
	packed, err := tarGz(files, r.created)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s.tgz", p.chart, r.chartVersion())
	if err := r.write(name, packed); err != nil {
		return err
	}
	return r.compareChart(ctx, p, filepath.Join(r.out, name))
}

// chartVersion returns the version without the v, as Helm requires.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }

// aboutProject returns the fields of Chart.yaml that have addresses of project.mk.
func (r *release) aboutProject() string {
	return fmt.Sprintf("home: %s\nicon: %[1]s/icon.svg\nsources: [%s]\nmaintainers:\n  - {name: the maintainers of nodekeeper, url: %[2]s/blob/%s/MAINTAINERS.md}\n",
		r.homepage, r.repository, r.version)
}

// chartFile returns a chart file for this release, with its version and images.
func (r *release) chartFile(p product, name string, content []byte) ([]byte, error) {
	var changes [][2]string
	switch name {
	case "Chart.yaml":
		changes = [][2]string{
			{"version: 0.0.0-dev\n", "version: " + r.chartVersion() + "\n"},
			{"appVersion: dev\n", "appVersion: " + r.version + "\n" + r.aboutProject()},
		}
	case "values.yaml":
		changes = [][2]string{{"\n  registry: \"\"\n", "\n  registry: " + r.registry + "\n"}}
		for _, service := range services {
			if before := "\n    " + service + ": \"\"\n"; bytes.Contains(content, []byte(before)) {
				changes = append(changes, [2]string{before, "\n    " + service + ": " + r.digests[service] + "\n"})
			}
		}
	case "README.md":
		// Links within the repository do not work outside it.
		changes = [][2]string{{"](../../../", "](" + r.repository + "/blob/" + path.Join(r.version, path.Dir(p.deploy)) + "/"}}
	}
	for _, change := range changes {
		if n := bytes.Count(content, []byte(change[0])); n != 1 {
			return nil, fmt.Errorf("%q is there %d times", change[0], n)
		}
		content = bytes.Replace(content, []byte(change[0]), []byte(change[1]), 1)
	}
	return content, nil
}

// compareChart checks that the packed chart renders the same objects as the files of the release.
func (r *release) compareChart(ctx context.Context, p product, packed string) error {
	c, err := helm.Load(packed)
	if err != nil {
		return err
	}
	into := helm.Release{Chart: p.chart, Name: p.chart, Namespace: p.namespace}
	for _, i := range p.installations {
		var values map[string]any
		if i.values != "" {
			if values, err = helm.Values(filepath.Join(p.chartDir(r.root), i.values)); err != nil {
				return err
			}
		}
		rendered, _, err := helm.Render(ctx, c, into, values)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(r.out, i.file))
		if err != nil {
			return err
		}
		want, err := helm.Decode(text)
		if err != nil {
			return err
		}
		if err := helm.Same(into, r.chartVersion(), r.version, rendered, want); err != nil {
			return fmt.Errorf("%s and the chart differ: %w", i.file, err)
		}
	}
	return nil
}
