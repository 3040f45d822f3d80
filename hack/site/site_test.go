package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// pages writes files into a new repository, and reads its Markdown.
func pages(t *testing.T, files map[string]string) (*source, error) {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return readSource(root)
}

func small() map[string]string {
	return map[string]string{
		"README.md":                 "# Home\n\n[docs](docs/README.md), [a section](docs/how-to/run.md#on-a-node)\n",
		"docs/README.md":            "# Documentation\n\n[all](#guides), [questions](faq.md)\n\n## Guides\n\n- [run it](how-to/run.md)\n\n## Reference\n\n- [Commands](cli/README.md)\n- [a rule](faq.md#rule)\n",
		"docs/faq.md":               "# Questions\n\n## Rule\n\n## `a/b` of [X](README.md), twice?\n\n## `a/b` of X, twice?\n",
		"docs/how-to/run.md":        "# Run\n\n## On a node\n\n[home](../../README.md), [commands](../cli), [base](../../deploy), [file](../../deploy/a.yaml), ![p](../p.svg)\n",
		"docs/cli/README.md":        "# Commands\n\n[second](b.md), [first](a.md)\n",
		"docs/cli/a.md":             "# a\n",
		"docs/cli/b.md":             "# b\n",
		"docs/cli/unlinked.md":      "# c\n",
		"docs/p.svg":                "<svg/>",
		"deploy/a.yaml":             "a: b\n",
		"docs/cli/sessions/some.md": "# session\n\nnot a folder with an index\n",
	}
}

func TestHeadingsHaveTheAnchorsOfGitHub(t *testing.T) {
	p, err := parsePage("x.md", []byte("# A `b/c` d-e\n\n## What's *this*, [then](x.md)?\n\n## What's this, then?\n\n## Über_uns  2.0\n\nSetext\n------\n"))
	require.NoError(t, err)
	var anchors []string
	for _, h := range p.headings {
		anchors = append(anchors, h.Anchor)
	}
	assert.Equal(t, []string{"a-bc-d-e", "whats-this-then", "whats-this-then-1", "über_uns--20", "setext"}, anchors)
	assert.Equal(t, "A b/c d-e", p.title)
}

func TestPagesWithHTMLAreRefused(t *testing.T) {
	for _, content := range []string{"# A\n\n<details>\n", "# A\n\na <br> b\n"} {
		_, err := parsePage("x.md", []byte(content))
		require.ErrorContains(t, err, "has HTML")
	}
	_, err := parsePage("x.md", []byte("# A\n\n<!-- begin -->\n"))
	require.NoError(t, err)
}

func TestLinksLeadToPagesCopiesAndTheRepository(t *testing.T) {
	s, err := pages(t, small())
	require.NoError(t, err)
	from := s.pages["docs/how-to/run.md"]
	for link, want := range map[string]string{
		"../../README.md":      "../../index.html",
		"../faq.md#rule":       "../../docs/faq.html#rule",
		"../cli":               "../../docs/cli/index.html",
		"../cli/":              "../../docs/cli/index.html",
		"#on-a-node":           "#on-a-node",
		"../../deploy":         "https://r/tree/main/deploy",
		"../../deploy/a.yaml":  "https://r/blob/main/deploy/a.yaml",
		"../p.svg":             "../../docs/p.svg",
		"https://example.com/": "https://example.com/",
		"missing.md":           "missing.md",
	} {
		got, file := s.siteLink(from, link, "https://r")
		assert.Equal(t, want, got, link)
		assert.Equal(t, strings.HasSuffix(link, ".svg"), file != "", link)
	}
}

func TestNavigationComesFromTheIndex(t *testing.T) {
	files := small()
	delete(files, "docs/cli/sessions/some.md")
	s, err := pages(t, files)
	require.NoError(t, err)
	groups, err := s.navigation()
	require.NoError(t, err)
	var lines []string
	for _, g := range groups {
		lines = append(lines, g.Title)
		for _, it := range g.Items {
			lines = append(lines, "  "+it.Title+" "+it.page.path+"#"+it.Anchor)
			for _, child := range it.children {
				lines = append(lines, "    "+child.title)
			}
		}
	}
	// In the order of the index, and the pages of a folder in that of its README.
	assert.Equal(t, []string{
		"Documentation", "  Questions docs/faq.md#",
		"Guides", "  Run it docs/how-to/run.md#",
		"Reference", "  Commands docs/cli/README.md#", "    b", "    a", "    c", "  A rule docs/faq.md#rule",
		"Project",
	}, lines)
}

func TestPageThatTheIndexDoesNotHaveIsAnError(t *testing.T) {
	s, err := pages(t, small())
	require.NoError(t, err)
	_, err = s.navigation()
	require.ErrorContains(t, err, "docs/README.md does not link to docs/cli/sessions/some.md")
}

// TestCheckFindsWhatIsBroken: each of the faults, in a site that has no other.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	whole := fstest.MapFS{
		"index.html":  {Data: []byte(`<h1 id="a">A</h1><a href="d/b.html#b">b</a><img src="p.svg">`)},
		"d/b.html":    {Data: []byte(`<h1 id="b">B</h1><a href="../index.html">a</a><a href="https://example.com">x</a><a href="#b">b</a>`)},
		"p.svg":       {Data: []byte(`<svg/>`)},
		"unlinked.js": {Data: []byte(`1`)},
	}
	r, err := checkSite(whole, nil)
	require.NoError(t, err)
	require.Empty(t, r.broken)
	assert.Equal(t, 3, r.links)

	for html, want := range map[string]string{
		`<a href="gone.html">x</a>`:                          "gone.html, which is not there",
		`<a href="d">x</a>`:                                  "links to d, which is not there",
		`<a href="d/b.html#gone">x</a>`:                      "d/b.html#gone, which has no such anchor",
		`<a href="#gone">x</a>`:                              "#gone, which has no such anchor",
		`<a href="p.svg#gone">x</a>`:                         "p.svg#gone, which has no such anchor",
		`<img src="gone.svg">`:                               "loads gone.svg, which is not there",
		`<script src="https://example.com/x.js"></script>`:   "from elsewhere",
		`<link rel="stylesheet" href="//example.com/x.css">`: "from elsewhere",
		`<p id="a">twice</p>`:                                `two elements have the id "a"`,
	} {
		site := maps.Clone(whole)
		site["index.html"] = &fstest.MapFile{Data: append([]byte(html), whole["index.html"].Data...)}
		r, err := checkSite(site, nil)
		require.NoError(t, err)
		require.Len(t, r.broken, 1, html)
		require.ErrorContains(t, r.broken[0], want)
	}

	site := maps.Clone(whole)
	site["alone.html"] = &fstest.MapFile{}
	r, err = checkSite(site, nil)
	require.NoError(t, err)
	require.Len(t, r.broken, 1)
	require.ErrorContains(t, r.broken[0], "no page links to alone.html")

	_, err = checkSite(fstest.MapFS{}, nil)
	require.Error(t, err, "nothing was checked")
}

func TestRunbooksLeadToPages(t *testing.T) {
	links := runbooks("  runbook_url: https://example.com/x/docs/a.md#one\n  summary: https://example.com/docs/b.md\n  runbook_url: https://example.com/docs/gone.md#one\n")
	assert.Equal(t, []string{"docs/a.md#one", "docs/gone.md#one"}, links)
	site := fstest.MapFS{
		"index.html":           {Data: []byte(`<a href="docs/a.html">a</a>`)},
		"docs/a.html":          {Data: []byte(`<h1 id="one">A</h1>`)},
		"docs/a.md/index.html": {Data: []byte(`<a href="../a.html">a</a>`)},
	}
	r, err := checkSite(site, append(links, "docs/a.md#two"))
	require.NoError(t, err)
	require.Len(t, r.broken, 2)
	require.ErrorContains(t, r.broken[0], "docs/gone.md#one is linked to, and not there")
	require.ErrorContains(t, r.broken[1], "docs/a.md#two is linked to, and has no such anchor")
}

// TestSiteOfThisRepository: no link of it is broken, and the search knows the text of its sections and where they are.
func TestSiteOfThisRepository(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	s, err := readSource(root)
	require.NoError(t, err)
	found := map[string]entry{}
	for _, p := range s.pages {
		for _, e := range sectionsOf(p) {
			found[e.URL] = e
		}
	}
	assert.Contains(t, found["docs/design.html#words"].Text, "incarnation")

	out := filepath.Join(t.TempDir(), "site")
	require.NoError(t, s.build(out, "https://example.com/r"))
	r, err := checkSite(os.DirFS(out), nil)
	require.NoError(t, err)
	assert.Empty(t, r.broken)
	assert.Greater(t, r.links, 1000)
	for url := range found {
		file, _, _ := strings.Cut(url, "#")
		assert.FileExists(t, filepath.Join(out, file))
	}
}
