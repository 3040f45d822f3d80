// Command site makes the documentation site from the Markdown of the repository: README.md and its neighbours, and docs
// (make site). With -check it then walks the pages that it made, and fails if a link, an anchor, a picture or the runbook of an alert
// leads nowhere, if a page loads anything from another host, or if no page leads to a page (make site-check).
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

func main() {
	out := flag.String("out", filepath.Join("bin", "site"), "where the site goes, from the root of the repository; what is there is replaced")
	url := flag.String("repository", "", "the `address` of the repository, where links to files lead that are no pages of the site; required")
	checks := flag.Bool("check", false, "also check the links of the pages that were made")
	flag.Parse()
	if *url == "" {
		fmt.Fprintln(os.Stderr, "site: -repository is required")
		os.Exit(2)
	}
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
	alerts, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "rules.yaml"))
	if err != nil {
		return err
	}
	links := runbooks(string(alerts))
	if len(links) == 0 {
		return errors.New("no alert has a runbook_url")
	}
	report, err := checkSite(os.DirFS(out), links)
	if err != nil {
		return fmt.Errorf("checking the site: %w", err)
	}
	_, _ = fmt.Fprintf(w, "checked %d links within the site: %d lead nowhere\n", report.links, len(report.broken))
	return errors.Join(report.broken...)
}
