package repository_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typed is a command that a page tells people to type, or names in its text.
type typed struct {
	line  int
	words []string
	// isNamed reports that it is in the text, where arguments may be left out.
	isNamed bool
}

var (
	// span is code in the text of a page.
	span = regexp.MustCompile("`([^`]+)`")
	// heredoc is what ends the lines that follow, which are no commands.
	heredoc = regexp.MustCompile(`<<-?'?(\w+)'?`)
	// shell are the languages of blocks that have commands. A block of another language has none.
	shell = regexp.MustCompile("^```(sh|bash|console)?$")
)

// commandsOn returns the commands of a page: those in blocks of code, and those in the text. In a
// block with prompts ($) the other lines are what the commands print.
func commandsOn(t *testing.T, path string) []typed {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var all []typed
	var block []string
	isShell, begin := false, 0 // of the block that is open, if begin is not zero
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```") && begin == 0:
			isShell, begin, block = shell.MatchString(line), i+1, nil
		case strings.HasPrefix(line, "```"):
			if isShell {
				all = append(all, inBlock(block, begin+1)...)
			}
			begin = 0
		case begin > 0:
			block = append(block, line)
		default:
			for _, found := range span.FindAllStringSubmatch(line, -1) {
				for _, words := range simpleCommands(found[1]) {
					all = append(all, typed{i + 1, words, true})
				}
			}
		}
	}
	return all
}

// inBlock returns the commands in a block of code, whose first line has this number.
func inBlock(lines []string, number int) []typed {
	hasPrompt := false
	for _, line := range lines {
		hasPrompt = hasPrompt || strings.HasPrefix(line, "$ ")
	}
	var all []typed
	script, end := "", ""
	for i, line := range lines {
		if end != "" {
			if line == end {
				end = ""
			}
			continue
		}
		command, isPrompt := strings.CutPrefix(line, "$ ")
		if hasPrompt && !isPrompt && script == "" {
			continue // what a command prints
		}
		script += strings.TrimSuffix(command, `\`)
		if strings.HasSuffix(command, `\`) {
			continue
		}
		if found := heredoc.FindStringSubmatch(script); found != nil {
			end = found[1]
		}
		for _, words := range simpleCommands(script) {
			all = append(all, typed{line: number + i, words: words})
		}
		script = ""
	}
	return all
}

// before are words that stand before a command.
var before = regexp.MustCompile(`^(sudo|env|exec|time|do|then|else|if|while|until|!|\{|[A-Za-z_]\w*=.*)$`)

// simpleCommands splits a script into the simple commands that it has in a row, a pipe or a
// substitution, as words: without comments, redirections, assignments and keywords. In double
// quotes it sees no substitution.
func simpleCommands(script string) [][]string {
	var all [][]string
	for _, words := range split(script) {
		for len(words) > 0 && before.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// split splits a script into words where a shell does, and these into rows where a command ends.
func split(script string) [][]string {
	var all [][]string
	var words []string
	word, inWord, quote, isTarget := "", false, byte(0), false
	endWord := func() {
		if inWord && !isTarget {
			words = append(words, word)
		}
		isTarget = isTarget && !inWord
		word, inWord = "", false
	}
	for i := 0; i < len(script); i++ {
		c := script[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'', quote == '"' && c != '\\':
			word += string(c)
		case c == '\\' && i+1 < len(script):
			i++
			word, inWord = word+string(script[i]), true
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#' && !inWord:
			i += len(script[i:]) // a comment
		case c == ' ' || c == '\t':
			endWord()
		case c == '<' || c == '>':
			if strings.Trim(word, "0123456789") == "" { // the number of what is redirected
				word, inWord = "", false
			}
			endWord()
			isTarget = true
		case strings.IndexByte(";|&()`", c) >= 0:
			if isTarget && c == '&' { // 2>&1
				continue
			}
			endWord()
			all, words, isTarget = append(all, words), nil, false
		default:
			word, inWord = word+string(c), true
		}
	}
	endWord()
	return append(all, words)
}

func TestCommandsAreFoundInAPage(t *testing.T) {
	path := t.TempDir() + "/page.md"
	require.NoError(t, os.WriteFile(path, []byte(strings.Join([]string{
		"Run `make demo KEEP=1`, or", "", "```", "make build   # all", "for i in 1 2; do", "  bin/watcher --a='b c' \\", "    -v=1 2>x.log &", "done", "```", "",
		"```console", "$ sudo A=1 kubectl get x | head -1 && kubectl create -f - <<END", "make no", "END", "make: no", `$ echo "it's $(x)" $(kubectl a) 2>&1`, "```", "```yaml", "make: no", "```",
	}, "\n")), 0o600))
	var found []typed
	for _, c := range commandsOn(t, path) {
		if c.words[0] != "for" && c.words[0] != "done" {
			found = append(found, c)
		}
	}
	assert.Equal(t, []typed{
		{1, []string{"make", "demo", "KEEP=1"}, true},
		{4, []string{"make", "build"}, false},
		{7, []string{"bin/watcher", "--a=b c", "-v=1"}, false},
		{12, []string{"kubectl", "get", "x"}, false},
		{12, []string{"head", "-1"}, false},
		{12, []string{"kubectl", "create", "-f", "-"}, false},
		{16, []string{"echo", "it's $(x)", "$"}, false},
		{16, []string{"kubectl", "a"}, false},
	}, found)
}
