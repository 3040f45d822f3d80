package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// named is a product as make and as the page call it, and the test of its chart.
type named struct{ product, title, chartTest string }

var products = []named{
	{"keeper", "label keeper", "TestTheLifeOfARelease"}, {"sharding", "sharder", "TestTheLifeOfASharder"}, {"placement", "placement", "TestTheLifeOfAPlacement"},
}

// releases returns the releases of Kubernetes that are pinned, and those that have results.
func releases(pinned string, results []result) []string {
	var all []string
	for line := range strings.Lines(pinned) {
		all = append(all, strings.TrimPrefix(strings.Fields(line)[1], "v"))
	}
	for _, r := range results {
		all = append(all, r.Kubernetes)
	}
	slices.SortFunc(all, byRelease)
	return slices.Compact(all)
}

// tables returns the results, the tests that failed, and why tests were skipped.
func tables(releases []string, results []result) string {
	var text strings.Builder
	text.WriteString("| Kubernetes |")
	for _, p := range products {
		text.WriteString(" " + p.title + " |")
	}
	text.WriteString(" commit |\n| --- |" + strings.Repeat(" --- |", len(products)+1) + "\n")
	for _, release := range releases {
		text.WriteString("| " + release + " |")
		var commits []string
		for _, p := range products {
			cell := "not run"
			for _, r := range results {
				if r.Kubernetes == release && r.Product == p.product {
					cell, commits = r.String(), append(commits, fmt.Sprintf("%.8s%s of %s", r.Commit, dirty.FindString(r.Commit), r.Date))
				}
			}
			text.WriteString(" " + cell + " |")
		}
		slices.Sort(commits)
		text.WriteString(" " + strings.Join(slices.Compact(commits), ", ") + " |\n")
	}
	for _, r := range results {
		for i, name := range r.Failed {
			if i == 0 {
				_, _ = fmt.Fprintf(&text, "\nThe %s failed on %s:\n\n", products[indexOf(r.Product)].title, r.Kubernetes)
			}
			_, _ = fmt.Fprintf(&text, "- `%s`\n", name)
		}
	}
	text.WriteString(skips(results))
	return text.String()
}

var dirty = regexp.MustCompile(`-dirty$`)

// needs matches the reason of a test that needs a newer release.
var needs = regexp.MustCompile(`^Kubernetes \S+: this (needs .*)`)

// skips returns a table of the reasons why tests were skipped.
func skips(results []result) string {
	on := map[string]map[string]int{} // tests by reason and release
	for _, r := range results {
		for reason, tests := range r.Skipped {
			reason = needs.ReplaceAllString(reason, "$1")
			if on[reason] == nil {
				on[reason] = map[string]int{}
			}
			on[reason][r.Kubernetes] += tests
		}
	}
	if len(on) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("\n| skipped, because | tests |\n| --- | --- |\n")
	for _, reason := range slices.Sorted(maps.Keys(on)) {
		var counts []string
		for _, release := range slices.SortedFunc(maps.Keys(on[reason]), byRelease) {
			counts = append(counts, fmt.Sprintf("%d on %s", on[reason][release], release))
		}
		_, _ = fmt.Fprintf(&text, "| `%s` | %s |\n", strings.ReplaceAll(reason, "|", `\|`), strings.Join(counts, ", "))
	}
	return text.String()
}
