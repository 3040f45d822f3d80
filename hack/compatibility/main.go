// Command compatibility keeps the results of the tests on each release of Kubernetes, and the tables
// that docs/reference/compatibility.md has of them. With -product it reads the output of go test
// -json from stdin, and stores it as the result of that product: make compatibility. It then writes
// the tables; with -check it writes nothing, and fails if they are stale.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Relative to the root of the repository.
var (
	resultsFile  = filepath.Join("docs", "reference", "compatibility.json")
	page         = filepath.Join("docs", "reference", "compatibility.md")
	releasesFile = filepath.Join("hack", "controlplane", "kubernetes.sum")
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout, time.Now()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "compatibility:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer, now time.Time) error {
	var of result
	flags := flag.NewFlagSet("compatibility", flag.ContinueOnError)
	flags.StringVar(&of.Product, "product", "", "read the output of go test -json as the result of this product")
	flags.StringVar(&of.Kubernetes, "kubernetes", "", "what kube-apiserver --version prints")
	flags.StringVar(&of.Commit, "commit", "", "the commit that was tested")
	isChecking := flags.Bool("check", false, "only report whether the page is fresh")
	if err := flags.Parse(args); err != nil {
		return err
	}
	results, err := readResults()
	if err != nil {
		return err
	}
	var failed error
	if of.Product != "" {
		of.Kubernetes = strings.TrimPrefix(of.Kubernetes, "Kubernetes v")
		of.Date = now.UTC().Format(time.DateOnly)
		if err := errors.Join(of.validate(), of.read(in)); err != nil {
			return err
		}
		if results, err = replace(results, of); err != nil {
			return err
		}
		if len(of.Failed) > 0 {
			failed = fmt.Errorf("failed on Kubernetes %s:\n%s", of.Kubernetes, strings.Join(of.Failed, "\n"))
		}
		_, _ = fmt.Fprintf(out, "%s on Kubernetes %s: %s\n", of.Product, of.Kubernetes, of)
	}
	return errors.Join(failed, updatePage(results, *isChecking))
}

func readResults() ([]result, error) {
	content, err := os.ReadFile(resultsFile)
	if err != nil {
		return nil, err
	}
	var results []result
	if err := json.Unmarshal(content, &results); err != nil {
		return nil, fmt.Errorf("reading %s: %w", resultsFile, err)
	}
	return results, nil
}

// replace stores a result instead of the former one of the same product and release, and returns all
// results.
func replace(results []result, by result) ([]result, error) {
	results = slices.DeleteFunc(results, func(r result) bool { return r.Product == by.Product && r.Kubernetes == by.Kubernetes })
	results = append(results, by)
	slices.SortFunc(results, inOrder)
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return nil, err
	}
	return results, os.WriteFile(resultsFile, append(content, '\n'), 0o600)
}

// The tables stand between these lines.
const begin, end = "<!-- begin results -->\n", "<!-- end results -->\n"

func updatePage(results []result, isChecking bool) error {
	pinned, err := os.ReadFile(releasesFile)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, hasBegin := bytes.Cut(content, []byte(begin))
	_, after, hasEnd := bytes.Cut(rest, []byte(end))
	if !hasBegin || !hasEnd {
		return fmt.Errorf("%s has no lines %q and %q", page, begin, end)
	}
	fresh := slices.Concat(before, []byte(begin), []byte(tables(releases(string(pinned), results), results)), []byte(end), after)
	switch {
	case bytes.Equal(content, fresh):
		return nil
	case isChecking:
		return fmt.Errorf("%s is not fresh: run make generate", page)
	}
	return os.WriteFile(page, fresh, 0o600)
}
