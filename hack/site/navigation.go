package main

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/yuin/goldmark/ast"
)

// navigationPage is the index whose sections are the groups of the navigation. There is no second list of pages.
const navigationPage = "docs/README.md"

// group is a part of the navigation.
type group struct {
	Title string
	index *page // the page that its title leads to, or nil
	Items []item
}

// item is an entry of the navigation. Its children are shown while one is in their folder.
type item struct {
	Title    string
	Anchor   string // in the page, or empty
	page     *page
	children []*page
}

// navigation makes the groups from the sections of the index, with the pages that they link to in the order of the links, and
// from the pages at the root of the repository. It fails if there is a page to which no group leads.
func (s *source) navigation() ([]group, error) {
	index, ok := s.pages[navigationPage]
	if !ok {
		return nil, fmt.Errorf("there is no %s", navigationPage)
	}
	groups := s.sections(index)
	listed := map[*page]bool{index: true, s.pages[indexFile]: true} // the name of the project leads to the latter
	for _, g := range groups {
		for _, it := range g.Items {
			listed[it.page] = listed[it.page] || it.Anchor == ""
		}
	}
	// What comes before the first section repeats some of the pages.
	for _, g := range groups[1:] {
		groups[0].Items = slices.DeleteFunc(groups[0].Items, func(it item) bool {
			return it.Anchor != "" || slices.ContainsFunc(g.Items, func(other item) bool { return other.page == it.page && other.Anchor == "" })
		})
	}
	s.addChildren(groups, listed)

	about := group{Title: "Project"}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		switch p := s.pages[name]; {
		case listed[p]:
		case path.Dir(name) == ".":
			about.Items = append(about.Items, item{Title: p.title, page: p})
		default:
			return nil, fmt.Errorf("%s does not link to %s", navigationPage, name)
		}
	}
	return append(groups, about), nil
}

// sections returns a group for what comes before the first section of an index, and one for each section that leads to pages.
func (s *source) sections(index *page) []group {
	groups := []group{{Title: index.title, index: index}}
	for block := index.doc.FirstChild(); block != nil; block = block.NextSibling() {
		if h, ok := block.(*ast.Heading); ok {
			if h.Level == 2 {
				groups = append(groups, group{Title: textOf(h, index.content)})
			}
			continue
		}
		last := &groups[len(groups)-1]
		for _, l := range linksOf(block) {
			if to, _, anchor := s.resolve(index, string(l.Destination)); to != nil && to != index {
				last.Items = append(last.Items, item{Title: capitalized(textOf(l, index.content)), Anchor: anchor, page: to})
			}
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.Items) == 0 && g.Title != index.title })
}

// addChildren gives each index of a folder the pages of that folder that are nowhere else: those that it links to, in that order,
// and then the others.
func (s *source) addChildren(groups []group, listed map[*page]bool) {
	for _, g := range groups {
		for i := range g.Items {
			it := &g.Items[i]
			if path.Base(it.page.path) != indexFile || it.Anchor != "" {
				continue
			}
			dir := path.Dir(it.page.path)
			var found []*page
			for _, l := range linksOf(it.page.doc) {
				to, _, _ := s.resolve(it.page, string(l.Destination))
				found = append(found, to)
			}
			for _, name := range slices.Sorted(maps.Keys(s.pages)) {
				found = append(found, s.pages[name])
			}
			for _, p := range found {
				if p != nil && !listed[p] && path.Dir(p.path) == dir {
					listed[p] = true
					it.children = append(it.children, p)
				}
			}
		}
	}
}

// linksOf returns the links below a node that stay in the repository.
func linksOf(n ast.Node) []*ast.Link {
	var links []*ast.Link
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering && !isExternal(string(l.Destination)) {
			links = append(links, l)
		}
		return ast.WalkContinue, nil
	})
	return links
}
