// Command animate makes the picture of the demo in the README, docs/pictures/demo.svg, from what a run of the demo printed
// (make picture). With -check it writes nothing. It fails if the picture does not show what it is made from, or if the run
// printed anything else than the one that was recorded, but for times, versions and the like (make picture-check).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"nodekeeper.dev/test/story"
)

// shown are the parts of the demo that the picture shows, by how their headings begin: a label is edited and the node deleted, and
// then it comes back.
var shown = []string{"2/7  ", "3/7  "}

func main() {
	dir := flag.String("dir", filepath.Join("docs", "pictures"), "where the picture and the record of the run are")
	run := flag.String("run", filepath.Join("bin", "demo.txt"), "what a run of the demo printed")
	checks := flag.Bool("check", false, "only say what is not fresh")
	flag.Parse()
	if err := animate(*dir, *run, *checks); err != nil {
		fmt.Fprintln(os.Stderr, "animate:", err)
		os.Exit(1)
	}
}

func animate(dir, run string, checks bool) error {
	record, picture := filepath.Join(dir, "demo.txt"), filepath.Join(dir, "demo.svg")
	output, err := os.ReadFile(run)
	if err != nil {
		return err
	}
	parts, err := partsOf(string(output))
	if err != nil {
		return fmt.Errorf("%s: %w", run, err)
	}
	if !checks {
		if err := os.WriteFile(record, []byte(parts), 0o600); err != nil {
			return err
		}
		return os.WriteFile(picture, draw(parts), 0o600)
	}
	recorded, err := os.ReadFile(record)
	if err != nil {
		return err
	}
	drawn, err := os.ReadFile(picture)
	switch {
	case err != nil:
		return err
	case string(drawn) != string(draw(string(recorded))):
		return fmt.Errorf("%s is not made from %s: run make picture", picture, record)
	case general(parts) != general(string(recorded)):
		return fmt.Errorf("the demo printed\n%s\nand not, but for numbers, what is in %s: run make picture", parts, record)
	}
	return nil
}

// partsOf returns the parts of the output of a run that the picture shows.
func partsOf(output string) (string, error) {
	var found []string
	for part := range strings.SplitSeq(output, "\n\n") {
		for _, heading := range shown {
			if strings.HasPrefix(part, heading) {
				found = append(found, strings.Trim(part, "\n"))
			}
		}
	}
	if len(found) != len(shown) {
		return "", errors.New("it does not have all the parts of the demo")
	}
	return strings.Join(found, "\n\n") + "\n", nil
}

var numbers = regexp.MustCompile(`[0-9]+`)

// general is an output without what differs from run to run: numbers, where the longer ones make a line break, and the order of
// events, which come by several watches.
func general(output string) string {
	details := strings.Repeat(" ", story.TextColumn)
	entries := []string{}
	for text := range strings.Lines(numbers.ReplaceAllString(output, "0")) {
		words := strings.Join(strings.Fields(text), " ")
		if last := len(entries) - 1; last >= 0 && strings.HasPrefix(text, details) {
			entries[last] += " " + words
			continue
		}
		entries = append(entries, words)
	}
	slices.Sort(entries)
	return strings.Join(entries, "\n")
}
