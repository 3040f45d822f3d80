// Command site makes the documentation site from the Markdown of the repository: README.md and its neighbours, and docs
// (make site). With -check it then walks the pages that it made, and fails if a link, an anchor or a picture leads nowhere,
// if a page loads anything from another host, or if no page leads to a page (make site-check).
//
// source.go reads the Markdown, and anchor.go names headings as GitHub does. link.go sends links to where they lead on the
// site. navigation.go makes the navigation from docs/README.md. build.go writes the pages by the template in assets,
// search.go what the search of the pages goes by, and check.go checks what was written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"nodekeeper.dev/test/repository"
)

// repositoryURL is where links to files lead that are no pages of the site.
const repositoryURL = "https://github.com/nodekeeper/nodekeeper"

func main() {
	out := flag.String("out", filepath.Join("bin", "site"), "where the site goes, from the root of the repository; what is there is replaced")
	url := flag.String("repository", repositoryURL, "where people find the repository")
	checks := flag.Bool("check", false, "also check the links of the pages that were made")
	flag.Parse()
	if err := run(os.Stdout, *out, *url, *checks); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, out, url string, checks bool) error {
	start := time.Now()
	root, err := repository.Root()
	if err != nil {
		return err
	}
	source, err := readSource(root)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	if err := source.build(out, url); err != nil {
		return fmt.Errorf("building the site: %w", err)
	}
	_, _ = fmt.Fprintf(w, "%d pages in %s, in %d ms\n", len(source.pages), out, time.Since(start).Milliseconds())
	if !checks {
		return nil
	}
	report, err := checkSite(os.DirFS(out))
	if err != nil {
		return fmt.Errorf("checking the site: %w", err)
	}
	_, _ = fmt.Fprintf(w, "checked %d links within the site: %d lead nowhere\n", report.links, len(report.broken))
	return errors.Join(report.broken...)
}
