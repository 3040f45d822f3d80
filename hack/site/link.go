package main

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// isExternal reports whether a link leaves the repository.
func isExternal(link string) bool {
	return strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:")
}

// resolve returns the page that a link leads to, or nil, with the path from the root of the repository and the anchor.
// A link to a folder with a README leads to that, as on GitHub.
func (s *source) resolve(from *page, link string) (to *page, file, anchor string) {
	file, anchor, _ = strings.Cut(link, "#")
	if file == "" {
		return from, from.path, anchor
	}
	file = path.Join(path.Dir(from.path), file)
	if p, ok := s.pages[file]; ok {
		return p, file, anchor
	}
	if p, ok := s.pages[path.Join(file, indexFile)]; ok {
		return p, p.path, anchor
	}
	return nil, file, anchor
}

// rewriteLinks makes the links of a page lead to where they lead on the site, and returns the files that the site needs copies
// of. A link to what does not exist stays as it is, for the check to find.
func (s *source) rewriteLinks(p *page, repositoryURL string) (files []string) {
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var destination *[]byte
		switch n := n.(type) {
		case *ast.Link:
			destination = &n.Destination
		case *ast.Image:
			destination = &n.Destination
		default:
			return ast.WalkContinue, nil
		}
		link, file := s.siteLink(p, string(*destination), repositoryURL)
		*destination = []byte(link)
		if file != "" {
			files = append(files, file)
		}
		return ast.WalkContinue, nil
	})
	return files
}

// siteLink returns where a link of a page leads on the site: to a page, to a copy of a file of docs, which it also returns, or
// to another file in the repository.
func (s *source) siteLink(p *page, link, repositoryURL string) (rewritten, file string) {
	if isExternal(link) || strings.HasPrefix(link, "#") {
		return link, ""
	}
	to, name, anchor := s.resolve(p, link)
	if anchor != "" {
		anchor = "#" + anchor
	}
	if to != nil {
		return relative(p.path, htmlPath(to.path)) + anchor, ""
	}
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(name)))
	switch {
	case err != nil:
		return link, ""
	case info.IsDir():
		return repositoryURL + "/tree/main/" + name + anchor, ""
	case strings.HasPrefix(name, "docs/"):
		return relative(p.path, name) + anchor, name
	}
	return repositoryURL + "/blob/main/" + name + anchor, ""
}

// relative is the link from one file to another, so that the site works below any address, and from a disk.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}
