// Command compatibility keeps the results of the tests on each release of Kubernetes, and the tables
// that docs/reference/compatibility.md has of them. Each argument is a product, with the packages
// that belong to it. Of their tests it runs those that talk to the API server in
// $KUBEBUILDER_ASSETS, and stores the results: make compatibility. Without arguments it only writes
// the tables; with -check it writes nothing, and fails if they are stale.
package main

import (
	"bytes"
	"context"
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

	"k8s.io/apimachinery/pkg/util/version"
)

// Relative to the root of the repository.
var (
	resultsFile  = filepath.Join("docs", "reference", "compatibility.json")
	page         = filepath.Join("docs", "reference", "compatibility.md")
	releasesFile = filepath.Join("hack", "controlplane", "kubernetes.sum")
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "compatibility:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("compatibility", flag.ContinueOnError)
	goFlags := flags.String("flags", "", "flags of go test")
	isChecking := flags.Bool("check", false, "only report whether the page is fresh")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var failed error
	for _, arg := range flags.Args() {
		product, packages, _ := strings.Cut(arg, " ")
		t := tests{dir: ".", packages: strings.Fields(packages), flags: strings.Fields(*goFlags), problems: os.Stderr}
		failed = errors.Join(failed, testProduct(ctx, product, t, out))
	}
	return errors.Join(failed, updatePage(*isChecking))
}

// testProduct tests a product, and stores the result.
func testProduct(ctx context.Context, product string, t tests, out io.Writer) error {
	at := indexOf(product)
	if at < 0 {
		return fmt.Errorf("there is no product %q", product)
	}
	r, err := identify(ctx, product)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join("bin", "compatibility-"+product+".json"))
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // for people who look for what failed
	t.chart, t.log = products[at].chartTest, log
	if err := t.run(ctx, &r); err != nil {
		return fmt.Errorf("testing %s: %w", product, err)
	}
	_, _ = fmt.Fprintf(out, "%s on Kubernetes %s: %s\n", product, r.Kubernetes, r)
	return errors.Join(r.store(), r.failure())
}

// identify returns a result without tests: what is tested, and on which release.
func identify(ctx context.Context, product string) (result, error) {
	r := result{Product: product, Date: time.Now().UTC().Format(time.DateOnly)}
	server, err := output(ctx, os.Stderr, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver"), "--version")
	if err != nil {
		return r, err
	}
	r.Kubernetes = strings.TrimPrefix(server, "Kubernetes v")
	if _, err := version.ParseSemantic(r.Kubernetes); err != nil {
		return r, fmt.Errorf("kube-apiserver prints no release: %w", err)
	}
	r.Commit, err = testedCommit(ctx)
	return r, err
}

// failure returns the tests that failed as an error.
func (r *result) failure() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return fmt.Errorf("failed on Kubernetes %s, see bin/compatibility-%s.json:\n%s", r.Kubernetes, r.Product, strings.Join(r.Failed, "\n"))
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

// store replaces the stored result of the same product and release.
func (r *result) store() error {
	results, err := readResults()
	if err != nil {
		return err
	}
	results = slices.DeleteFunc(results, func(old result) bool { return old.Product == r.Product && old.Kubernetes == r.Kubernetes })
	results = append(results, *r)
	slices.SortFunc(results, inOrder)
	content, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(resultsFile, append(content, '\n'), 0o600)
}

// The tables stand between these lines.
const begin, end = "<!-- begin results -->\n", "<!-- end results -->\n"

func updatePage(isChecking bool) error {
	results, err := readResults()
	if err != nil {
		return err
	}
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
