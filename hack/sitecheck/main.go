// Command sitecheck walks the documentation site that hack/site made (make site-check). It fails
// if a link, an anchor, a picture or the runbook of an alert leads nowhere, if a page loads
// anything from another host, or if no page leads to a page.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("site", filepath.Join("bin", "site"), "where the site is")
	homepage := flag.String("homepage", "", "the URL of the site; without it, the site is at the root of its host")
	alerts := flag.String("alerts", filepath.Join("deploy", "monitoring", "rules.yaml"), "the rules whose runbooks are pages of the site")
	flag.Parse()
	if err := run(os.Stdout, *dir, *homepage, *alerts); err != nil {
		fmt.Fprintln(os.Stderr, "sitecheck:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, dir, homepage, alerts string) error {
	at, err := url.Parse(homepage)
	if err != nil {
		return err
	}
	rules, err := os.ReadFile(alerts)
	if err != nil {
		return err
	}
	links := runbooks(string(rules))
	if len(links) == 0 {
		return errors.New("no alert has a runbook_url")
	}
	checked, problems, err := checkSite(os.DirFS(dir), at.Path, links)
	if err != nil {
		return fmt.Errorf("checking the site: %w", err)
	}
	_, _ = fmt.Fprintf(w, "checked %d links within the site: %d problems\n", checked, len(problems))
	return errors.Join(problems...)
}
