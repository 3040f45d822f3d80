package repository_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
)

// ofGo are the flags of go run and go test that the pages use.
var ofGo = []string{"C", "count", "run", "v", "args", "timeout", "bench", "benchmem", "benchtime", "cpu", "race"}

// goCommand is a parsed command of go.
type goCommand struct {
	dir      string // of -C
	packages []string
	flags    []goFlag
}

type goFlag struct{ name, value string }

func parseGo(words []string) goCommand {
	var c goCommand
	for i, word := range words {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		if !hasValue && i+1 < len(words) {
			value = words[i+1]
		}
		switch {
		case word == "-C":
			c.dir = value
		case strings.HasPrefix(word, "-"):
			c.flags = append(c.flags, goFlag{name, value})
		case word == "." || strings.HasPrefix(word, "./"):
			c.packages = append(c.packages, word)
		}
	}
	return c
}

// checkGo checks packages, the tests that are named by -run and -bench, and other flags, which must
// be in the source of a package.
func (o *ours) checkGo(words []string) string {
	if words[0] != "run" && !slices.Contains(words, "test") {
		return ""
	}
	c := parseGo(words)
	var source string
	for _, pkg := range c.packages {
		if strings.HasSuffix(pkg, "/...") {
			return ""
		}
		path := filepath.Join(c.dir, pkg)
		text := o.source(path)
		if text == "" {
			return "there is no package " + path
		}
		source += text
	}
	if source == "" {
		return ""
	}
	source += o.source("test/reference") // its flag is one of all packages that import it
	for _, flag := range c.flags {
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[flag.name]
		switch {
		case kind != "" && words[0] != "run":
			if !hasTest(source, kind, flag.value) {
				return fmt.Sprintf("the package has no %s that matches %s", kind, flag.value)
			}
		case !slices.Contains(ofGo, flag.name) && !strings.Contains(source, `"`+flag.name+`"`):
			return "the package has no flag " + flag.name
		}
	}
	return ""
}

// source returns the text of a package.
func (o *ours) source(path string) string {
	o.t.Helper()
	files, err := filepath.Glob(filepath.Join(o.root, path, "*.go"))
	require.NoError(o.t, err)
	var text strings.Builder
	for _, file := range files {
		text.WriteString(o.read(path, filepath.Base(file)))
	}
	return text.String()
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Example|Benchmark)\w+)\(`)

// hasTest reports whether a pattern of -run or -bench matches a test. ^$ is there to match none.
func hasTest(source, kind, pattern string) bool {
	first, _, _ := strings.Cut(pattern, "/") // what follows is about parts of the test
	matches, err := regexp.Compile(first)
	if err != nil {
		return false
	}
	return pattern == "^$" || slices.ContainsFunc(firstGroups(testName, source), func(name string) bool {
		runs := strings.HasPrefix(name, kind) || kind == "Test" && strings.HasPrefix(name, "Example")
		return runs && matches.MatchString(name)
	})
}
