// Command sitecheck walks the documentation site that hack/site made (make site-check). It fails
// if a link, an anchor, a picture or the runbook of an alert leads nowhere, if a page loads
// anything from another host, or if no page leads to a page.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("site", filepath.Join("bin", "site"), "where the site is")
	alerts := flag.String("alerts", filepath.Join("deploy", "monitoring", "rules.yaml"), "the rules whose runbooks are pages of the site")
	flag.Parse()
	if err := run(os.Stdout, *dir, *alerts); err != nil {
		fmt.Fprintln(os.Stderr, "sitecheck:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, dir, alerts string) error {
	rules, err := os.ReadFile(alerts)
	if err != nil {
		return err
	}
	links := runbooks(string(rules))
	if len(links) == 0 {
		return errors.New("no alert has a runbook_url")
	}
	checked, problems, err := checkSite(os.DirFS(dir), links)
	if err != nil {
		return fmt.Errorf("checking the site: %w", err)
	}
	_, _ = fmt.Fprintf(w, "checked %d links within the site: %d problems\n", checked, len(problems))
	return errors.Join(problems...)
}
