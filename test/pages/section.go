package pages

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// GoAlone is the section of README.md for those who have Go and no cluster.
const GoAlone = "Try it without a cluster"

// Section returns what a page has below a heading of the second level, or "" if there is no such
// heading.
func Section(content, heading string) string {
	_, section, _ := strings.Cut(content, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// counted are the numbers that pages write as words.
var counted = map[string]int{"a": 1, "two": 2, "three": 3, "five": 5, "ten": 10, "fifteen": 15, "twenty": 20, "thirty": 30}

// Promised returns how long something takes according to a page. The group of the pattern matches
// the number of minutes, as a word. A space of the pattern matches the end of a line, too.
func Promised(content, pattern string) (time.Duration, error) {
	found := regexp.MustCompile(strings.ReplaceAll(pattern, " ", `\s`)).FindStringSubmatch(content)
	if found == nil {
		return 0, fmt.Errorf("the page does not state how long it takes: nothing matches %q", pattern)
	}
	minutes, known := counted[found[1]]
	if !known {
		return 0, fmt.Errorf("the page states %q minutes, which is not a known number", found[1])
	}
	return time.Duration(minutes) * time.Minute, nil
}
