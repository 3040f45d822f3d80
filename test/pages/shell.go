package pages

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Command is a command that a page has people type, or names in its text.
type Command struct {
	// Line is the number of its line in the page, from 1.
	Line  int
	Words []string
	// Named reports that it is in the text, where arguments may be left out.
	Named bool
}

var (
	// span is code in the text of a page.
	span = regexp.MustCompile("`([^`]+)`")
	// typed is a line of a script, with those that it goes on with behind a backslash.
	typed = regexp.MustCompile(`(?:\\\n|[^\n])+`)
)

// Commands returns the simple commands of a page in order: those in blocks of code, and those in
// the text.
func Commands(path string) ([]Command, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the commands of a page: %w", err)
	}
	blocks, text := Parse(string(content))
	var all []Command
	for _, block := range blocks {
		for _, step := range block.Steps() {
			for _, line := range step.lines() {
				for _, words := range simpleCommands(line.Text) {
					all = append(all, Command{Line: line.Number, Words: words})
				}
			}
		}
	}
	for _, line := range text {
		for _, code := range Spans(line.Text) {
			for _, words := range simpleCommands(code) {
				all = append(all, Command{line.Number, words, true})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Command) int { return a.Line - b.Line })
	return all, nil
}

// lines returns the lines of a script that have commands, with their numbers in the page. A
// here-document has none.
func (s Step) lines() []Line {
	var all []Line
	for _, found := range typed.FindAllStringIndex(s.Script, -1) {
		text := strings.ReplaceAll(s.Script[found[0]:found[1]], "\\\n", "")
		all = append(all, Line{s.Line + strings.Count(s.Script[:found[0]], "\n"), text})
		if heredoc.MatchString(text) {
			break
		}
	}
	return all
}

// Spans returns the code in a line of text.
func Spans(text string) []string {
	var all []string
	for _, found := range span.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
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
			if strings.Trim(word, "0123456789") == "" { // the redirected file descriptor
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
