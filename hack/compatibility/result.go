package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// result is what the tests of a product found on a release of Kubernetes. A test with subtests
// counts as these.
type result struct {
	Kubernetes string `json:"kubernetes"`
	Product    string `json:"product"`
	// Date is when the tests ran. Commit ends in -dirty if something was not committed.
	Date   string `json:"date"`
	Commit string `json:"commit"`
	Passed int    `json:"passed"`
	// Failed has the names of tests, after that of their package, and packages that failed as a whole.
	Failed []string `json:"failed,omitempty"`
	// Skipped has the number of tests by the reason that they gave.
	Skipped map[string]int `json:"skipped,omitempty"`
}

func (r result) String() string {
	text := fmt.Sprintf("%d passed", r.Passed)
	if len(r.Failed) > 0 {
		text += fmt.Sprintf(", %d failed", len(r.Failed))
	}
	skipped := 0
	for _, tests := range r.Skipped {
		skipped += tests
	}
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	return text
}

// event is a line of go test -json: see go doc test2json. That of a package has no test.
type event struct {
	Action, Package, Test, Output string
}

// outcome is how a test or a package ended. The action is empty until it does.
type outcome struct {
	action, reason string
}

// outcomes are by package and test, which is empty for the package itself.
type outcomes map[[2]string]*outcome

// logged matches a line that a test has logged.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)\n`)

// read adds the results in the output of go test -json.
func (ran outcomes) read(in io.Reader) error {
	lines := json.NewDecoder(in)
	for {
		var e event
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the output of go test -json: %w", err)
		}
		if e.Package == "" {
			continue // of a build, whose packages fail
		}
		key := [2]string{e.Package, e.Test}
		if ran[key] == nil {
			ran[key] = &outcome{}
		}
		ran[key].add(e)
	}
}

// missing returns those of the packages, and the test, that go test has not run.
func (ran outcomes) missing(packages []string, test string) (missing []string) {
	hasRun := false
	for key := range ran {
		hasRun = hasRun || key[1] == test
	}
	for _, path := range packages {
		if ran[[2]string{path, ""}] == nil {
			missing = append(missing, path)
		}
	}
	if !hasRun {
		missing = append(missing, test)
	}
	return missing
}

func (o *outcome) add(e event) {
	switch e.Action {
	case "pass", "fail", "skip":
		o.action = e.Action
	case "output":
		if found := logged.FindStringSubmatch(e.Output); found != nil {
			o.reason = found[1] // the last line before a test is skipped
		}
	}
}

// count counts every test that has no subtests. One that fails, or does not end, counts in any case,
// unless the reason is a subtest: so does a package.
func (r *result) count(ran outcomes) {
	parents, blamed := map[[2]string]bool{}, map[[2]string]bool{}
	for key, o := range ran {
		for _, above := range parentsOf(key) {
			parents[above] = true
			blamed[above] = blamed[above] || o.isFailure()
		}
	}
	for key, o := range ran {
		switch {
		case o.isFailure():
			if !blamed[key] {
				r.Failed = append(r.Failed, strings.TrimSpace(key[0]+" "+key[1]))
			}
		case parents[key] || key[1] == "":
		case o.action == "pass":
			r.Passed++
		default:
			if r.Skipped == nil {
				r.Skipped = map[string]int{}
			}
			r.Skipped[cmp.Or(o.reason, "no reason given")]++
		}
	}
	slices.Sort(r.Failed)
}

func (o *outcome) isFailure() bool { return o.action != "pass" && o.action != "skip" }

// parentsOf returns the tests that a test is a subtest of, and its package.
func parentsOf(key [2]string) (parents [][2]string) {
	for name := key[1]; name != ""; {
		name = name[:max(0, strings.LastIndex(name, "/"))]
		parents = append(parents, [2]string{key[0], name})
	}
	return parents
}

// inOrder compares results by release and then by product, as the tables have them.
func inOrder(a, b result) int {
	return cmp.Or(byRelease(a.Kubernetes, b.Kubernetes), cmp.Compare(indexOf(a.Product), indexOf(b.Product)))
}

// byRelease compares releases, which run has checked.
func byRelease(a, b string) int {
	order, _ := version.MustParseSemantic(a).Compare(b)
	return order
}

func indexOf(product string) int {
	return slices.IndexFunc(products, func(p named) bool { return p.product == product })
}
