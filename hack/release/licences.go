package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// module is a module that is linked into a program.
type module struct {
	path, version string
	ids           []string          // SPDX identifiers of its licences
	texts         map[string][]byte // its licences and notices, by path in the module
}

// licences finds the licences of modules. It is safe for concurrent use once it is created.
type licences struct {
	root       string
	goroot     string
	mu         sync.Mutex // the classifier does not document that it is safe for concurrent use
	classifier *classifier.Classifier
	read       map[string][]byte   // cached files by path
	matched    map[string][]string // cached licences by text: programs share most modules, and modules most texts
}

func newLicences(ctx context.Context, root string) (*licences, error) {
	c, err := assets.DefaultClassifier()
	if err != nil {
		return nil, err
	}
	goroot, err := goCommand(ctx, root, target{}, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return &licences{root: root, goroot: strings.TrimSpace(string(goroot)), classifier: c, read: map[string][]byte{}, matched: map[string][]string{}}, nil
}

// allowed are the licences of modules that may be linked into a program under the Apache License.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "0BSD", "CC0-1.0"}

// legal matches the names of the files that must accompany a program.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// standard is the name of Go's standard library as a module in build information and vulnerability
// databases.
const standard = "std"

// listed is a package in the output of go list.
type listed struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version string }
	}
}

// of returns the modules that are linked into a program, Go's standard library first, with the
// licences that apply to the used packages: those of the module and those of directories within it.
// It returns an error if a licence is missing, unknown or not allowed.
func (l *licences) of(ctx context.Context, p *program) ([]module, error) {
	found, err := l.listed(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := p.checkLinked(found); err != nil {
		return nil, err
	}
	modules := []module{*found[standard]}
	delete(found, standard)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		modules = append(modules, *found[name])
	}
	for i := range modules {
		if modules[i].ids, err = l.identify(modules[i].texts); err != nil {
			return nil, fmt.Errorf("module %s %s: %w", modules[i].path, modules[i].version, err)
		}
	}
	return modules, nil
}

// listed returns the modules of the packages that go list reports for a program, and Go's standard
// library, by their paths, with the texts of their licences.
func (l *licences) listed(ctx context.Context, p *program) (map[string]*module, error) {
	dir, pkg := p.source()
	out, err := goCommand(ctx, filepath.Join(l.root, dir), p.target, "list", "-deps", "-json=Dir,Standard,Module", pkg)
	if err != nil {
		return nil, err
	}
	found := map[string]*module{standard: {path: standard, version: p.info.GoVersion, texts: map[string][]byte{}}}
	if err := l.collect(found[standard], l.goroot, l.goroot); err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one listed
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		if one.Standard || one.Module == nil || one.Module.Main {
			continue
		}
		m := found[one.Module.Path]
		if m == nil {
			m = &module{path: one.Module.Path, version: one.Module.Version, texts: map[string][]byte{}}
			if one.Module.Replace != nil {
				m.version = one.Module.Replace.Version
			}
			found[m.path] = m
		}
		if err := l.collect(m, one.Dir, one.Module.Dir); err != nil {
			return nil, err
		}
	}
}

// linked returns the modules of others that are linked into the program. For a program of others,
// these include its own.
func (p *program) linked() []*debug.Module {
	if controlPlane[p.name] != "" {
		return append([]*debug.Module{&p.info.Main}, p.info.Deps...)
	}
	return p.info.Deps
}

// checkLinked returns an error if the modules that are linked into the program are not those found.
func (p *program) checkLinked(found map[string]*module) error {
	linked := p.linked()
	for _, dep := range linked {
		version := dep.Version
		if dep.Replace != nil {
			if dep.Replace.Path != dep.Path {
				return fmt.Errorf("%s is replaced by %s: only this machine could build this", dep.Path, dep.Replace.Path)
			}
			version = dep.Replace.Version
		}
		if m := found[dep.Path]; m == nil || m.version != version {
			return fmt.Errorf("%s %s is linked, but go list does not list it", dep.Path, version)
		}
	}
	if len(found) != len(linked)+1 {
		return fmt.Errorf("go list lists %d modules, but %d are linked", len(found)-1, len(linked))
	}
	return nil
}

// collect adds the texts in a directory of a module and in its parents, up to the root of the
// module.
func (l *licences) collect(m *module, dir, top string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			// LICENSE.docs is the licence of documentation, and no program contains any.
			if ext := path.Ext(entry.Name()); entry.IsDir() || !legal.MatchString(entry.Name()) || ext == ".go" || ext == ".docs" {
				continue
			}
			file := filepath.Join(dir, entry.Name())
			name, err := filepath.Rel(top, file)
			if err != nil {
				return err
			}
			if m.texts[filepath.ToSlash(name)], err = l.readFile(file); err != nil {
				return err
			}
		}
		if dir == top || len(dir) <= len(top) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

func (l *licences) readFile(name string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if content, known := l.read[name]; known {
		return content, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	l.read[name] = content
	return content, nil
}

// identify returns the licences in some texts, sorted.
func (l *licences) identify(texts map[string][]byte) ([]string, error) {
	if len(texts) == 0 {
		return nil, errors.New("it has no licence")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, id := range l.matchLocked(texts[name]) {
			if slices.Contains(ids, id) {
				continue
			}
			if !slices.Contains(allowed, id) {
				return nil, fmt.Errorf("%s is the licence %s, which is not one of %v", name, id, allowed)
			}
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("none of %v is a known licence", slices.Sorted(maps.Keys(texts)))
	}
	slices.Sort(ids)
	return ids, nil
}

// matchLocked returns the licences in a text.
func (l *licences) matchLocked(text []byte) []string {
	if ids, known := l.matched[string(text)]; known {
		return ids
	}
	var ids []string
	for _, match := range l.classifier.Match(text).Matches {
		if match.MatchType == "License" {
			ids = append(ids, match.Name)
		}
	}
	l.matched[string(text)] = ids
	return ids
}

// texts returns the files that accompany programs, by path: our licence, and those of their
// modules. The control plane can have other versions of modules than our programs.
func (r *release) texts(programs ...*program) (map[string][]byte, error) {
	own, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"licenses/LICENSE": own}
	for _, p := range programs {
		top := "licenses"
		if controlPlane[p.name] != "" {
			top = path.Join(top, "controlplane")
		}
		for _, m := range p.modules {
			for name, text := range m.texts {
				files[path.Join(top, m.path, name)] = text
			}
		}
	}
	return files, nil
}
