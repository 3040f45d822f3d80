// Command clidocs generates docs/cli from the commands of the plugin, and from the sessions
// recorded by test/plugin: make generate. With -check it writes nothing, and fails if a page is
// stale.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/plugin/cli"
)

func main() {
	dir := flag.String("dir", filepath.Join("docs", "cli"), "where the pages are")
	isChecking := flag.Bool("check", false, "only report pages that are not fresh")
	flag.Parse()
	if err := run(*dir, *isChecking); err != nil {
		fmt.Fprintln(os.Stderr, "clidocs:", err)
		os.Exit(1)
	}
}

func run(dir string, isChecking bool) error {
	pages, err := render(filepath.Join(dir, "sessions"))
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	var stale []string
	for _, path := range found {
		if _, isKnown := pages[filepath.Base(path)]; !isKnown {
			stale = append(stale, path+" is of no command")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		path := filepath.Join(dir, name)
		has, err := os.ReadFile(path)
		switch {
		case err == nil && bytes.Equal(has, pages[name]):
			continue
		case isChecking:
			stale = append(stale, path+" is not fresh: run make generate")
			continue
		}
		if err := os.WriteFile(path, pages[name], 0o600); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		return errors.New(strings.Join(stale, "\n"))
	}
	return nil
}

var heading = regexp.MustCompile(`(?m)^#(#+) `)

// render returns the pages by file name.
func render(sessions string) (map[string][]byte, error) {
	root := cli.NewCommand(genericiooptions.IOStreams{})
	root.DisableAutoGenTag = true
	pages := map[string][]byte{}
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.IsAvailableCommand() && cmd != root {
			continue
		}
		page, err := renderPage(cmd, sessions)
		if err != nil {
			return nil, fmt.Errorf("the page of %s: %w", cmd.CommandPath(), err)
		}
		// cobra's pages begin with a second-level heading, so they would have no title.
		pages[pageOf(strings.ReplaceAll(cmd.CommandPath(), " ", "_")+".md")] = heading.ReplaceAll(page, []byte("$1 "))
	}
	return pages, nil
}

func renderPage(cmd *cobra.Command, sessions string) ([]byte, error) {
	cmd.Long = asMarkdown(cmd.Long)
	var page bytes.Buffer
	if err := doc.GenMarkdownCustom(cmd, &page, pageOf); err != nil {
		return nil, err
	}
	session, err := os.ReadFile(filepath.Join(sessions, cmd.Name()+".txt"))
	if errors.Is(err, fs.ErrNotExist) && (cmd.HasSubCommands() || cmd.Name() == "options") {
		return page.Bytes(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("a command has a session, see test/plugin: %w", err)
	}
	const next = "### SEE ALSO"
	before, after, isThere := bytes.Cut(page.Bytes(), []byte(next))
	if !isThere {
		return nil, fmt.Errorf("there is no %q to put the session before", next)
	}
	if own, _, hasGlobal := bytes.Cut(before, []byte("### Options inherited from parent commands")); hasGlobal { // they would fill most of every page
		before = slices.Concat(own, []byte("Every command has [the flags of kubectl nodekeeper options](options.md), too.\n\n"))
	}
	return slices.Concat(before, []byte("### In a terminal\n\n```\n"), session, []byte("```\n\n"), []byte(next), after), nil
}

// pageOf returns the file name of a page, for which cobra uses another name.
func pageOf(name string) string {
	page := strings.TrimPrefix(strings.TrimPrefix(name, "kubectl_nodekeeper"), "_")
	if page == ".md" {
		return "README.md"
	}
	return page
}

// asMarkdown turns indented text in a help text into separate blocks.
func asMarkdown(text string) string {
	var page strings.Builder
	wasIndented := false
	for line := range strings.Lines(text) {
		isIndented := strings.HasPrefix(line, "  ")
		if isIndented && !wasIndented {
			page.WriteString("\n")
		}
		if isIndented {
			page.WriteString("  ") // four spaces start a block
		}
		page.WriteString(line)
		wasIndented = isIndented
	}
	return page.String()
}
