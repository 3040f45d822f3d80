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
	reached := map[string]bool{"index.html": true, "404.html": true}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		p := pages[name]
		fail := func(format string, args ...any) {
			r.broken = append(r.broken, fmt.Errorf(name+": "+format, args...))
		}
		for _, id := range p.twice {
			fail("two elements have the id %q", id)
		}
		for _, load := range p.loads {
			switch {
			case strings.HasPrefix(load, "data:"): // it is in the page
			case isExternal(load):
				fail("loads %s from elsewhere", load)
			case !files[target(name, load)]:
				fail("loads %s, which is not there", load)
			}
		}
		for _, link := range p.links {
			if isExternal(link) {
				continue
			}
			r.links++
			to, anchor, hasAnchor := strings.Cut(link, "#")
			switch file := target(name, to); {
			case !files[file]:
				fail("links to %s, which is not there", link)
			case hasAnchor && (pages[file] == nil || !pages[file].ids[anchor]):
				fail("links to %s, which has no such anchor", link)
			case file != name:
				reached[file] = true
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
		if to := pages[target(file+"/index.html", forward.links[0])]; to == nil || !to.ids[anchor] {
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

// isExternal reports whether a link leaves the site.
func isExternal(link string) bool {
	return strings.Contains(link, "://") || strings.HasPrefix(link, "//") || strings.HasPrefix(link, "mailto:")
}

// target returns the file that a link of a page leads to, from the root of the site.
func target(from, link string) string {
	switch {
	case link == "":
		return from
	case strings.HasSuffix(link, "/"):
		link += "index.html"
	}
	if path.IsAbs(link) {
		return strings.TrimPrefix(path.Clean(link), "/")
	}
	return path.Join(path.Dir(from), link)
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
