// Command chart generates the templates of the Helm chart from the manifests under deploy: make
// generate. The manifests are therefore the single source of truth, and a setting of the chart has
// the effect of the component with its name.
//
// features.go lists the components that each setting enables, and values.go the values that a
// template uses. merge.go merges the texts of an object with and without each component into one
// template. The tests compare Helm's output for the chart with kustomize's output for the
// manifests.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"nodekeeper.dev/hack/manifests"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

// byHand are the templates that the command does not change.
var byHand = []string{"NOTES.txt", "_helpers.tpl", "checks.yaml"}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chart", flag.ContinueOnError)
	deploy := flags.String("deploy", "deploy", "`directory` of the manifests")
	dir := flags.String("chart", "deploy/chart/nodekeeper", "`directory` of the chart")
	check := flags.Bool("check", false, "change nothing, and fail if the chart is not what the manifests say")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tree, err := manifests.Load(*deploy)
	if err != nil {
		return err
	}
	files, err := templates(tree)
	if err != nil {
		return err
	}
	if files["README.md"], err = readme(*dir); err != nil {
		return err
	}
	stale, err := compare(*dir, files)
	if err != nil || len(stale) == 0 {
		return err
	}
	if *check {
		return fmt.Errorf("%v are stale: run make generate", stale)
	}
	_, _ = fmt.Fprintln(out, "changed:", stale)
	return write(*dir, stale, files)
}

// compare returns the stale files of the chart, sorted. A template that is missing in files must
// not exist.
func compare(dir string, files map[string][]byte) ([]string, error) {
	var stale []string
	for name, content := range files {
		has, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err != nil || !bytes.Equal(has, content) {
			stale = append(stale, name)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "templates"))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := filepath.Join("templates", entry.Name())
		if _, known := files[name]; !known && !slices.Contains(byHand, entry.Name()) {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return stale, nil
}

// write updates or removes the stale files.
func write(dir string, names []string, files map[string][]byte) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		content, known := files[name]
		if !known {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
