package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// source is the Markdown that the site is made from.
type source struct {
	root  string
	pages map[string]*page // by path
}

// page is a Markdown file, parsed.
type page struct {
	path     string // from the root of the repository, with slashes
	title    string // the text of the first heading
	content  []byte
	doc      ast.Node
	headings []heading
}

// heading is one of a page, in order.
type heading struct {
	Level  int
	Anchor string
	Text   string
}

// readSource parses the pages: the Markdown files at the root, and those in docs.
func readSource(root string) (*source, error) {
	s := &source{root: root, pages: map[string]*page{}}
	files, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".md") {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		p, err := parsePage(filepath.ToSlash(name), content)
		if err != nil {
			return nil, err
		}
		s.pages[p.path] = p
	}
	return s, nil
}

// shortCode is how much code stays on one line. A browser breaks "--retention" after the dashes, and a long one must be broken.
const shortCode = 30

// markdown renders what GitHub renders: tables, strikethrough, task lists and bare URLs.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

func parsePage(name string, content []byte) (*page, error) {
	p := &page{path: name, content: content, doc: markdown.Parser().Parse(text.NewReader(content))}
	anchors := anchorNames{}
	err := ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			h := heading{Level: n.Level, Text: textOf(n, content)}
			h.Anchor = anchors.name(h.Text)
			n.SetAttributeString("id", []byte(h.Anchor))
			p.headings = append(p.headings, h)
		case *ast.CodeSpan:
			if len(textOf(n, content)) <= shortCode {
				n.SetAttributeString("class", []byte("short"))
			}
		case *ast.HTMLBlock:
			if first := n.Lines().At(0); !strings.HasPrefix(string(first.Value(content)), "<!--") {
				return ast.WalkStop, fmt.Errorf("%s: has HTML, which the site does not show: %s", name, first.Value(content))
			}
		case *ast.RawHTML:
			return ast.WalkStop, fmt.Errorf("%s: has HTML, which the site does not show: %s", name, n.Segments.Value(content))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	if len(p.headings) == 0 {
		return nil, fmt.Errorf("%s has no heading", name)
	}
	p.title = p.headings[0].Text
	return p, nil
}

// textOf returns the text of a node without its markup.
func textOf(n ast.Node, content []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(content))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// htmlPath is where a page is on the site.
func htmlPath(mdPath string) string {
	dir, file := path.Split(mdPath)
	if file == indexFile {
		return dir + "index.html"
	}
	return dir + strings.TrimSuffix(file, ".md") + ".html"
}

// indexFile is the page of its folder.
const indexFile = "README.md"
