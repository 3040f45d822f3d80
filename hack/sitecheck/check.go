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

// builtSite is a site that was made.
type builtSite struct {
	base  string                // where it is on its host, without the slash at its end
	files map[string]bool       // by path
	pages map[string]*builtPage // those files that are HTML
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

// checkSite returns what is wrong with the HTML in a folder and with links to it from elsewhere,
// and how many links within the site there are. base is the path at which a host serves the folder.
// It fails only if the folder cannot be read.
func checkSite(dir fs.FS, base string, elsewhere []string) (links int, problems []error, err error) {
	s, err := readSite(dir, strings.TrimSuffix(base, "/"))
	if err != nil {
		return 0, nil, err
	}
	reached := map[string]bool{"index.html": true, "404.html": true}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		problems = append(problems, s.checkLoads(name)...)
		for _, link := range s.pages[name].links {
			if isExternal(link) {
				continue
			}
			links++
			to, problem := s.follow(name, link)
			if problem != nil {
				problems = append(problems, problem)
			} else if to != name {
				reached[to] = true
			}
		}
	}
	for _, link := range elsewhere {
		links++
		if err := s.checkForward(link); err != nil {
			problems = append(problems, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if isForward := strings.HasSuffix(path.Dir(name), ".md"); !reached[name] && !isForward {
			problems = append(problems, fmt.Errorf("no page links to %s", name))
		}
	}
	if len(s.pages) == 0 || links == 0 {
		return 0, nil, fmt.Errorf("there are %d pages with %d links: nothing was checked", len(s.pages), links)
	}
	return links, problems, nil
}

func readSite(dir fs.FS, base string) (*builtSite, error) {
	s := &builtSite{base: base, files: map[string]bool{}, pages: map[string]*builtPage{}}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s.files[name] = true
		if path.Ext(name) == ".html" {
			s.pages[name], err = readBuilt(dir, name)
		}
		return err
	})
	return s, err
}

// checkLoads returns what is wrong with what a page loads, and with its ids.
func (s *builtSite) checkLoads(name string) (problems []error) {
	for _, id := range s.pages[name].twice {
		problems = append(problems, fmt.Errorf("%s: two elements have the id %q", name, id))
	}
	for _, load := range s.pages[name].loads {
		switch {
		case strings.HasPrefix(load, "data:"): // it is in the page
		case isExternal(load):
			problems = append(problems, fmt.Errorf("%s: loads %s from elsewhere", name, load))
		case !s.files[s.target(name, load)]:
			problems = append(problems, fmt.Errorf("%s: loads %s, which is not there", name, load))
		}
	}
	return problems
}

// follow returns the file that a link of a page leads to.
func (s *builtSite) follow(name, link string) (string, error) {
	to, anchor, hasAnchor := strings.Cut(link, "#")
	file := s.target(name, to)
	switch {
	case !s.files[file]:
		return "", fmt.Errorf("%s: links to %s, which is not there", name, link)
	case hasAnchor && (s.pages[file] == nil || !s.pages[file].ids[anchor]):
		return "", fmt.Errorf("%s: links to %s, which has no such anchor", name, link)
	}
	return file, nil
}

// checkForward checks a link that works in the repository: its path is that of a page that
// forwards.
func (s *builtSite) checkForward(link string) error {
	file, anchor, hasAnchor := strings.Cut(link, "#")
	name := path.Join(file, "index.html")
	forward := s.pages[name]
	if forward == nil || len(forward.links) == 0 {
		return fmt.Errorf("%s is linked to, and not there", link)
	}
	to := s.pages[s.target(name, forward.links[0])]
	if to == nil || (hasAnchor && !to.ids[anchor]) {
		return fmt.Errorf("%s is linked to, and has no such anchor", link)
	}
	return nil
}

// isExternal reports whether a link leaves the site.
func isExternal(link string) bool {
	return strings.Contains(link, "://") || strings.HasPrefix(link, "//") || strings.HasPrefix(link, "mailto:")
}

// target returns the file that a link of a page leads to, from the root of the site. No file has
// the name that it returns for a link that leads out of the site.
func (s *builtSite) target(from, link string) string {
	switch {
	case link == "":
		return from
	case strings.HasSuffix(link, "/"):
		link += "index.html"
	}
	if path.IsAbs(link) {
		within, isWithin := strings.CutPrefix(path.Clean(link), s.base+"/")
		if !isWithin {
			return link
		}
		return within
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
