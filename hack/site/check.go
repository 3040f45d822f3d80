package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// report is what a check found.
type report struct {
	links  int // within the site
	broken []error
}

// builtPage is a page of the built site, as far as links are concerned.
type builtPage struct {
	ids   map[string]bool
	links []string // href of links
	loads []string // what a browser fetches to show the page
	twice []string // ids that two elements have
}

var runbookURL = regexp.MustCompile(`(?m)^\s*runbook_url: https://\S*?/(docs/\S+)$`)

// runbooks returns the links of alerts to the site, from its root.
func runbooks(rules string) []string {
	var links []string
	for _, found := range runbookURL.FindAllStringSubmatch(rules, -1) {
		links = append(links, found[1])
	}
	return links
}

// checkSite walks the HTML in a folder, and links to it from elsewhere. It fails only if that cannot be read.
func checkSite(site fs.FS, elsewhere []string) (report, error) {
	pages := map[string]*builtPage{}
	files := map[string]bool{}
	err := fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name] = true
		if path.Ext(name) != ".html" {
			return nil
		}
		pages[name], err = readBuilt(site, name)
		return err
	})
	if err != nil {
		return report{}, err
	}
	var r report
	reached := map[string]bool{"index.html": true}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		p := pages[name]
		fail := func(format string, args ...any) {
			r.broken = append(r.broken, fmt.Errorf(name+": "+format, args...))
		}
		for _, id := range p.twice {
			fail("two elements have the id %q", id)
		}
		for _, load := range p.loads {
			if isExternal(load) || strings.HasPrefix(load, "//") || strings.HasPrefix(load, "data:") {
				fail("loads %s from elsewhere", load)
			} else if !files[path.Join(path.Dir(name), load)] {
				fail("loads %s, which is not there", load)
			}
		}
		for _, link := range p.links {
			if isExternal(link) {
				continue
			}
			r.links++
			to, anchor, hasAnchor := strings.Cut(link, "#")
			target := name
			if to != "" {
				target = path.Join(path.Dir(name), to)
			}
			switch {
			case !files[target]:
				fail("links to %s, which is not there", link)
			case hasAnchor && (pages[target] == nil || !pages[target].ids[anchor]):
				fail("links to %s, which has no such anchor", link)
			case target != name:
				reached[target] = true
			}
		}
	}
	for _, link := range elsewhere {
		// A path that works in the repository leads to a page that forwards.
		file, anchor, _ := strings.Cut(link, "#")
		r.links++
		forward := pages[path.Join(file, "index.html")]
		if forward == nil {
			r.broken = append(r.broken, fmt.Errorf("%s is linked to, and not there", link))
			continue
		}
		if target := pages[path.Join(file, forward.links[0])]; target == nil || !target.ids[anchor] {
			r.broken = append(r.broken, fmt.Errorf("%s is linked to, and has no such anchor", link))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if isForward := strings.HasSuffix(path.Dir(name), ".md"); !reached[name] && !isForward {
			r.broken = append(r.broken, fmt.Errorf("no page links to %s", name))
		}
	}
	if len(pages) == 0 || r.links == 0 {
		return report{}, fmt.Errorf("there are %d pages with %d links: nothing was checked", len(pages), r.links)
	}
	return r, nil
}

func readBuilt(site fs.FS, name string) (*builtPage, error) {
	f, err := site.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	doc, err := html.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &builtPage{ids: map[string]bool{}}
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id" && p.ids[a.Val]:
				p.twice = append(p.twice, a.Val)
			case a.Key == "id":
				p.ids[a.Val] = true
			case a.Key == "href" && n.Data == "a":
				p.links = append(p.links, a.Val)
			case a.Key == "href", a.Key == "src", a.Key == "srcset":
				p.loads = append(p.loads, a.Val)
			}
		}
	}
	return p, nil
}
