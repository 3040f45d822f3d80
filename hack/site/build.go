package main

import (
	"bytes"
	"embed"
	"html/template"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unicode"
	"unicode/utf8"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/*.html"))

// view is what the template shows.
type view struct {
	Title    string
	Root     string // the way to the root of the site
	Source   string // the page in the repository
	Content  template.HTML
	Groups   []groupView
	Contents []heading // the headings below the title, unless there are few
}

type groupView struct {
	Title   string
	URL     string // of the index, if this is its group
	Current bool
	Items   []itemView
}

type itemView struct {
	Title    string
	URL      string
	Current  bool // it is this page
	Children []itemView
}

// build writes the site into a folder, and replaces what was there.
func (s *source) build(out, repositoryURL string) error {
	// Before the links are rewritten, by which the navigation is made.
	groups, err := s.navigation()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	var pages []*page
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		pages = append(pages, s.pages[name])
	}
	for _, p := range pages {
		for _, file := range s.rewriteLinks(p, repositoryURL) {
			content, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(file)))
			if err != nil {
				return err
			}
			if err := writeFile(out, file, content); err != nil {
				return err
			}
		}
		rendered, err := render(p, groups, repositoryURL)
		if err != nil {
			return err
		}
		if err := writeFile(out, htmlPath(p.path), rendered); err != nil {
			return err
		}
		if err := writeForward(out, p); err != nil {
			return err
		}
	}
	index, err := searchIndex(pages)
	if err != nil {
		return err
	}
	if err := writeFile(out, "search.js", index); err != nil {
		return err
	}
	for _, name := range []string{"style.css", "site.js"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if err := writeFile(out, name, content); err != nil {
			return err
		}
	}
	return nil
}

// writeForward makes the path that a page has in the repository lead to the page. Alerts name it, for example.
func writeForward(out string, p *page) error {
	var b bytes.Buffer
	err := layout.ExecuteTemplate(&b, "forward.html", map[string]string{"Title": p.title, "URL": "../" + path.Base(htmlPath(p.path))})
	if err != nil {
		return err
	}
	return writeFile(out, p.path+"/index.html", b.Bytes())
}

// render returns the HTML of a page.
func render(p *page, groups []group, repositoryURL string) ([]byte, error) {
	var content, whole bytes.Buffer
	if err := markdown.Renderer().Render(&content, p.content, p.doc); err != nil {
		return nil, err
	}
	v := view{
		Title:   p.title,
		Root:    relative(p.path, ""),
		Source:  repositoryURL + "/blob/main/" + p.path,
		Content: template.HTML(content.String()), // made from the Markdown of this repository, without its HTML
	}
	for _, g := range groups {
		v.Groups = append(v.Groups, g.view(p))
	}
	for _, h := range p.headings[1:] {
		if h.Level <= 3 {
			v.Contents = append(v.Contents, h)
		}
	}
	if len(v.Contents) < 3 {
		v.Contents = nil
	}
	err := layout.ExecuteTemplate(&whole, "page.html", v)
	return whole.Bytes(), err
}

// view is a group as it is shown beside a page.
func (g group) view(p *page) groupView {
	v := groupView{Title: g.Title}
	if g.index != nil {
		v.URL, v.Current = relative(p.path, htmlPath(g.index.path)), g.index == p
	}
	for _, it := range g.Items {
		shown := itemView{Title: it.Title, URL: relative(p.path, htmlPath(it.page.path)), Current: it.page == p && it.Anchor == ""}
		if it.Anchor != "" {
			shown.URL += "#" + it.Anchor
		}
		if path.Dir(it.page.path) == path.Dir(p.path) {
			for _, child := range it.children {
				shown.Children = append(shown.Children,
					itemView{Title: child.title, URL: relative(p.path, htmlPath(child.path)), Current: child == p})
			}
		}
		v.Items = append(v.Items, shown)
	}
	return v
}

func writeFile(out, name string, content []byte) error {
	file := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// capitalized returns a text that begins with a capital, as an entry of the navigation does.
func capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
