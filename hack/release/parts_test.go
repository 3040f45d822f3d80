package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/google/licenseclassifier/v2/assets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/hack/helm"
)

// unpack returns the files in a tar.
func unpack(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		if header.Typeflag == tar.TypeReg {
			files[header.Name], err = io.ReadAll(archive)
			require.NoError(t, err)
		}
	}
}

// indexOf returns the index in an image file.
func indexOf(t *testing.T, file string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, content := range unpack(t, bytes.NewReader(read(t, file))) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	top, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index
}

// unpacked caches the results of contents by directory: unpacking and validating takes seconds.
var unpacked = map[string]map[string]map[string][]byte{}

// contents returns the files of each image of the release, and of each plugin archive, by the name
// of its bill of materials. The caller must not change them.
func contents(t *testing.T, dir string) map[string]map[string][]byte {
	t.Helper()
	if all, known := unpacked[dir]; known {
		return all
	}
	all := map[string]map[string][]byte{}
	for _, first := range append([]string{demo}, services...) {
		name := "nodekeeper-" + first + "_" + version
		index := indexOf(t, filepath.Join(dir, name+".tar"))
		require.NoError(t, validate.Index(index))
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		require.NotEmpty(t, manifest.Manifests)
		for _, one := range manifest.Manifests {
			img, err := index.Image(one.Digest)
			require.NoError(t, err)
			files := mutate.Extract(img)
			all[name+"_"+one.Platform.OS+"_"+one.Platform.Architecture] = unpack(t, files)
			require.NoError(t, files.Close())
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "kubectl-*.tar.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	for _, archive := range archives {
		zipped, err := gzip.NewReader(bytes.NewReader(read(t, archive)))
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(archive), ".tar.gz")] = unpack(t, zipped)
	}
	unpacked[dir] = all
	return all
}

// programsIn returns the programs in each of them, by their names.
func programsIn(t *testing.T, dir string) map[string]map[string][]byte {
	t.Helper()
	all := map[string]map[string][]byte{}
	for name, files := range contents(t, dir) {
		first, _, _ := strings.Cut(strings.TrimPrefix(name, "nodekeeper-"), "_")
		all[name] = map[string][]byte{}
		for _, program := range contentOf(first) {
			require.Contains(t, files, program, name)
			all[name][program] = files[program]
		}
	}
	return all
}

// TestEachProgramHasItsBillAndLicences checks that every module in the build information of a
// program is in the accompanying bill of materials, and has its licence in the same image or
// archive.
func TestEachProgramHasItsBillAndLicences(t *testing.T) {
	dir := built(t)
	programs := programsIn(t, dir)
	for name, files := range contents(t, dir) {
		bom := &cdx.BOM{}
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(read(t, dir, name+".cdx.json")), cdx.BOMFileFormatJSON).Decode(bom))
		assert.Equal(t, time.Unix(1700000000, 0).UTC().Format(time.RFC3339), bom.Metadata.Timestamp)
		described := []cdx.Component{*bom.Metadata.Component}
		if described[0].Type == cdx.ComponentTypeContainer {
			assert.Contains(t, files, "licenses/LICENSE")
			described = *described[0].Components
		} else {
			assert.Contains(t, files, "LICENSE")
		}
		assert.Len(t, described, len(programs[name]), name)
		billed, linked := map[string]cdx.Component{}, map[string]bool{}
		for _, component := range *bom.Components {
			billed[component.Name+"@"+component.Version] = component
		}
		for _, one := range described {
			content := programs[name][one.Name]
			require.NotEmpty(t, content, "%s in %s", one.Name, name)
			assert.Equal(t, sumOf(content), (*one.Hashes)[0].Value, name)
			for _, dep := range linkedIn(t, one.Name, content) {
				module := dep.Path + "@" + dep.Version
				linked[module] = true
				if assert.NotNil(t, billed[module].Licenses, "%s in %s", module, name) {
					assert.NotEmpty(t, *billed[module].Licenses, module)
				}
				assert.True(t, hasText(files, one.Name, dep.Path), "%s has no licence of %s", name, dep.Path)
			}
		}
		assert.Len(t, *bom.Components, len(linked), name)
		assert.Len(t, billed, len(linked), name)
	}
}

// linkedIn returns the modules that are linked into a program, with Go's standard library, by its
// build information.
func linkedIn(t *testing.T, name string, program []byte) []debug.Module {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	require.NoError(t, err)
	linked := []debug.Module{{Path: standard, Version: info.GoVersion}}
	if controlPlane[name] != "" {
		linked = append(linked, info.Main)
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		linked = append(linked, *dep)
	}
	return linked
}

func hasText(files map[string][]byte, program, module string) bool {
	top := "licenses"
	if controlPlane[program] != "" {
		top = "licenses/controlplane"
	}
	for name, text := range files {
		if strings.HasPrefix(name, path.Join(top, module)+"/") && len(text) > 100 {
			return true
		}
	}
	return false
}

// TestManifestsNameTheImages checks that they use the digests of the indexes in the same release.
func TestManifestsNameTheImages(t *testing.T) {
	dir := built(t)
	for _, p := range products {
		for _, i := range p.installations {
			checkImages(t, dir, i.file)
		}
	}
	for _, e := range extras {
		objects, err := helm.Decode(read(t, dir, e.file))
		require.NoError(t, err)
		assert.NotEmpty(t, objects, e.file)
	}
}

// checkImages checks that a manifest has images, and that all of them are in the release.
func checkImages(t *testing.T, dir, file string) {
	t.Helper()
	text := string(read(t, dir, file))
	images := 0
	for _, service := range services {
		index := indexOf(t, filepath.Join(dir, "nodekeeper-"+service+"_"+version+".tar"))
		digest, err := index.Digest()
		require.NoError(t, err)
		images += strings.Count(text, "image: registry.example.com/nodekeeper/nodekeeper-"+service+":"+version+"@"+digest.String()+"\n")
	}
	assert.Equal(t, strings.Count(text, "image: "), images, file)
	assert.NotZero(t, images, file)
}

func TestKrewFindsTheArchives(t *testing.T) {
	dir := built(t)
	for plugin, file := range plugins {
		checkKrew(t, dir, plugin, file)
	}
}

func checkKrew(t *testing.T, dir, plugin, file string) {
	t.Helper()
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version, Homepage string
			Platforms         []struct{ URI, SHA256, Bin string }
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, dir, file), &manifest))
	assert.Equal(t, strings.TrimPrefix(plugin, "kubectl-"), manifest.Metadata.Name)
	assert.Equal(t, version, manifest.Spec.Version)
	assert.Equal(t, "https://example.com", manifest.Spec.Homepage)
	require.NotEmpty(t, manifest.Spec.Platforms)
	for _, p := range manifest.Spec.Platforms {
		base, archive := path.Split(p.URI)
		assert.Equal(t, "https://example.com/sources/releases/download/"+version+"/", base)
		content := read(t, dir, archive)
		assert.Equal(t, sumOf(content), p.SHA256)
		if strings.HasSuffix(archive, ".zip") {
			zipped, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
			require.NoError(t, err)
			program, err := zipped.Open(p.Bin)
			require.NoError(t, err)
			assert.NoError(t, program.Close())
		}
	}
}

func TestEveryChartIsInARelease(t *testing.T) {
	root := filepath.Join("..", "..")
	var has, want []string
	for _, p := range products {
		has = append(has, p.chartDir(root))
	}
	for _, pattern := range []string{"deploy/chart/*", "*/deploy/chart/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		want = append(want, found...)
	}
	assert.ElementsMatch(t, want, has)
}

// TestChartOfAReleaseIsOfThatVersion does not compare objects: the release itself checks that the
// chart installs the same objects as the manifests.
func TestChartOfAReleaseIsOfThatVersion(t *testing.T) {
	for _, p := range products {
		checkChart(t, p)
	}
}

func checkChart(t *testing.T, p product) {
	t.Helper()
	c, err := helm.Load(filepath.Join(built(t), p.chart+"-"+strings.TrimPrefix(version, "v")+".tgz"))
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(version, "v"), c.Metadata.Version)
	assert.Equal(t, version, c.Metadata.AppVersion)
	assert.Equal(t, "https://example.com", c.Metadata.Home)
	assert.Equal(t, "https://example.com/icon.svg", c.Metadata.Icon)
	require.Len(t, c.Metadata.Maintainers, 1)
	assert.Equal(t, c.Metadata.Sources[0]+"/blob/"+version+"/MAINTAINERS.md", c.Metadata.Maintainers[0].URL)
	assert.NotNil(t, c.Schema)
	found, _, err := helm.Render(t.Context(), c, helm.Release{Name: "n", Namespace: "elsewhere"}, map[string]any{"image": map[string]any{"tag": "v2"}})
	require.NoError(t, err)
	images := 0
	for _, obj := range found {
		if obj.GetKind() == "Deployment" {
			text, err := obj.MarshalJSON()
			require.NoError(t, err)
			service := strings.TrimSuffix(obj.GetName(), "-controller") // that of placement
			assert.Contains(t, string(text), `"image":"registry.example.com/nodekeeper/nodekeeper-`+service+`:v2"`)
			images++
		}
	}
	assert.NotZero(t, images)
}

// TestALicenceThatIsMissingUnknownOrForeignFails checks that such a licence fails the release.
func TestALicenceThatIsMissingUnknownOrForeignFails(t *testing.T) {
	l, err := newLicences(t.Context(), filepath.Join("..", ".."))
	require.NoError(t, err)
	_, err = l.identify(nil)
	require.ErrorContains(t, err, "no licence")
	_, err = l.identify(map[string][]byte{"LICENSE": []byte("Do what you like.")})
	require.ErrorContains(t, err, "none of [LICENSE] is a known licence")
	foreign, err := assets.ReadLicenseFile("License/GPL-2.0/license.txt")
	require.NoError(t, err)
	_, err = l.identify(map[string][]byte{"COPYING": foreign})
	require.ErrorContains(t, err, "GPL-2.0")

	ids, err := l.identify(map[string][]byte{"LICENSE": read(t, "..", "..", "LICENSE")})
	require.NoError(t, err)
	assert.Equal(t, []string{"Apache-2.0"}, ids)
}

// TestTextsOfDirectoriesInUseAreCollected checks that texts are collected up to the root of the
// module, and no others.
func TestTextsOfDirectoriesInUseAreCollected(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"LICENSE", "NOTICE.txt", "LICENSE.docs", "license.go", "main.go", "used/COPYING", "used/deep/LICENSE-MIT", "unused/LICENSE", "../LICENSE"} {
		file := filepath.Join(top, "module", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(name), 0o600))
	}
	l := &licences{read: map[string][]byte{}}
	m := &module{texts: map[string][]byte{}}
	require.NoError(t, l.collect(m, filepath.Join(top, "module", "used", "deep"), filepath.Join(top, "module")))
	names := map[string]string{}
	for name, text := range m.texts {
		names[name] = string(text)
	}
	assert.Equal(t, map[string]string{
		"LICENSE": "LICENSE", "NOTICE.txt": "NOTICE.txt", "used/COPYING": "used/COPYING", "used/deep/LICENSE-MIT": "used/deep/LICENSE-MIT",
	}, names)
}

// TestABillHasEachVersionOfAModuleOnce checks that it has the licences of the packages that any of
// the programs uses.
func TestABillHasEachVersionOfAModuleOnce(t *testing.T) {
	one := &program{modules: []module{{path: "a", version: "v1", ids: []string{"MIT"}}, {path: "b", version: "v1", ids: []string{"MIT"}}}}
	another := &program{modules: []module{{path: "a", version: "v1", ids: []string{"Apache-2.0", "MIT"}}, {path: "b", version: "v2", ids: []string{"ISC"}}}}
	assert.Equal(t, []module{
		{path: "a", version: "v1", ids: []string{"Apache-2.0", "MIT"}}, {path: "b", version: "v1", ids: []string{"MIT"}}, {path: "b", version: "v2", ids: []string{"ISC"}},
	}, modulesOf([]*program{one, another}))
	assert.Equal(t, []string{"MIT"}, one.modules[0].ids)
}
