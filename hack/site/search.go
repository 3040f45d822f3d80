package main

import (
	"encoding/json"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// entry is a section of a page, as the search knows it. The names are short because every reader who searches loads all of them.
type entry struct {
	URL   string `json:"u"` // from the root of the site
	Page  string `json:"p"`
	Title string `json:"t"`
	Text  string `json:"x"`
}

// searchIndex is a script, because a page that is read from a disk may load no data.
func searchIndex(pages []*page) ([]byte, error) {
	var entries []entry
	for _, p := range pages {
		entries = append(entries, sectionsOf(p)...)
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	return append(append([]byte("window.searchIndex="), data...), ";\n"...), nil
}

// sectionsOf returns a page by its headings.
func sectionsOf(p *page) []entry {
	var entries []entry
	next := 0
	for block := p.doc.FirstChild(); block != nil; block = block.NextSibling() {
		if _, ok := block.(*ast.Heading); ok {
			h := p.headings[next]
			next++
			url := htmlPath(p.path)
			if next > 1 {
				url += "#" + h.Anchor
			}
			entries = append(entries, entry{URL: url, Page: p.title, Title: h.Text})
			continue
		}
		if len(entries) > 0 {
			last := &entries[len(entries)-1]
			last.Text = strings.TrimSpace(last.Text + " " + strings.Join(strings.Fields(blockText(block, p.content)), " "))
		}
	}
	return entries
}

// blockText is the text of a block with that of its code, with spaces between its parts.
func blockText(block ast.Node, content []byte) string {
	var b strings.Builder
	_ = ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch {
		case n.Kind() == ast.KindHTMLBlock:
			return ast.WalkSkipChildren, nil
		case n.Type() != ast.TypeBlock:
			return ast.WalkContinue, nil
		case n.Kind() == ast.KindFencedCodeBlock, n.Kind() == ast.KindCodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(content))
			}
			b.WriteByte(' ')
			return ast.WalkSkipChildren, nil
		case n.FirstChild() != nil && n.FirstChild().Type() == ast.TypeInline:
			b.WriteString(textOf(n, content) + " ")
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
