package main

import (
	"maps"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCheckFindsWhatIsBroken: each of the faults, in a site that has no other.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	whole := fstest.MapFS{
		"index.html":   {Data: []byte(`<h1 id="a">A</h1><a href="d/b.html#b">b</a><img src="p.svg">`)},
		"d/b.html":     {Data: []byte(`<h1 id="b">B</h1><a href="../index.html">a</a><a href="https://example.com">x</a><a href="#b">b</a><a href="/d/">d</a>`)},
		"d/index.html": {Data: []byte(`<a href="/d/b.html#b">b</a><img src="data:image/svg+xml,x"><img src="/p.svg">`)},
		"p.svg":        {Data: []byte(`<svg/>`)},
		"unlinked.js":  {Data: []byte(`1`)},
	}
	links, problems, err := checkSite(whole, "", nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	assert.Equal(t, 5, links)

	for html, want := range map[string]string{
		`<a href="gone.html">x</a>`:                          "gone.html, which is not there",
		`<a href="/d/gone.html">x</a>`:                       "links to /d/gone.html, which is not there",
		`<a href="/gone/">x</a>`:                             "links to /gone/, which is not there",
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
		_, problems, err := checkSite(site, "", nil)
		require.NoError(t, err)
		require.Len(t, problems, 1, html)
		require.ErrorContains(t, problems[0], want)
	}

	site := maps.Clone(whole)
	site["alone.html"] = &fstest.MapFile{}
	_, problems, err = checkSite(site, "", nil)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], "no page links to alone.html")

	_, _, err = checkSite(fstest.MapFS{}, "", nil)
	require.Error(t, err, "nothing was checked")
}

// TestSiteBelowAPath: a link from the root of the host leads out of a site that is below a path.
func TestSiteBelowAPath(t *testing.T) {
	const link = `<a href="/project/b.html">b</a>`
	for html, want := range map[string]int{link: 0, link + `<a href="/b.html">b</a>`: 1, link + `<a href="/projects/b.html">b</a>`: 1} {
		site := fstest.MapFS{"index.html": {Data: []byte(html)}, "b.html": {}}
		for _, base := range []string{"/project", "/project/"} {
			_, problems, err := checkSite(site, base, nil)
			require.NoError(t, err)
			assert.Len(t, problems, want, html)
		}
	}
}

func TestRunbooksLeadToPages(t *testing.T) {
	links := runbooks("  runbook_url: https://example.com/x/docs/a.md#one\n  summary: https://example.com/docs/b.md\n  runbook_url: https://example.com/docs/gone.md#one\n")
	assert.Equal(t, []string{"docs/a.md#one", "docs/gone.md#one"}, links)
	site := fstest.MapFS{
		"index.html":               {Data: []byte(`<a href="docs/a.html">a</a>`)},
		"docs/a.html":              {Data: []byte(`<h1 id="one">A</h1>`)},
		"docs/a.md/index.html":     {Data: []byte(`<a href="/docs/a.html">a</a>`)},
		"docs/empty.md/index.html": {},
	}
	_, problems, err := checkSite(site, "", append(links, "docs/a.md#two", "docs/a.md", "docs/empty.md#one"))
	require.NoError(t, err)
	require.Len(t, problems, 3)
	require.ErrorContains(t, problems[0], "docs/gone.md#one is linked to, and not there")
	require.ErrorContains(t, problems[1], "docs/a.md#two is linked to, and has no such anchor")
	require.ErrorContains(t, problems[2], "docs/empty.md#one is linked to, and not there")
}
