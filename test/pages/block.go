package pages

import (
	"regexp"
	"strings"
)

// Block is a block of code in a page.
type Block struct {
	// Line is the number of its first line in the page, from 1. The fence is above it.
	Line int
	// Language is what stands in the fence.
	Language string
	// Lines are without the indentation of the fence.
	Lines []string
}

// Line is a line of the text of a page.
type Line struct {
	Number int
	Text   string
}

// Parse returns the blocks of a page, and the lines outside of them.
func Parse(content string) (blocks []Block, text []Line) {
	var open *Block
	indent := ""
	for i, line := range strings.Split(content, "\n") {
		before, language, isFence := strings.Cut(line, "```")
		isFence = isFence && strings.TrimSpace(before) == ""
		switch {
		case isFence && open == nil:
			open, indent = &Block{Line: i + 2, Language: strings.TrimSpace(language)}, before
		case isFence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimRight(strings.TrimPrefix(line, indent), " \t\r"))
		default:
			text = append(text, Line{i + 1, line})
		}
	}
	return blocks, text
}

// Step is what people type at once, and what the page shows that it prints.
type Step struct {
	// Line is the number of its first line in the page.
	Line int
	// Script is what a shell takes, without the prompt.
	Script string
	// Shown is nil where the page shows nothing.
	Shown []string
}

// Command returns the script without the comment at its end.
func (s Step) Command() string {
	command, _, _ := strings.Cut(s.Script, "#")
	return strings.TrimSpace(command)
}

var (
	// heredoc is what ends the lines that follow, which are no commands.
	heredoc = regexp.MustCompile(`<<-?'?(\w+)'?`)
	// loop begins a loop that goes on to the line that loopEnd matches.
	loop    = regexp.MustCompile(`^(?:for|while|until) .*\bdo$`)
	loopEnd = regexp.MustCompile(`^done\b`)
	// shell are the languages of blocks that have commands. A block of another language has none.
	shell = regexp.MustCompile("^(sh|bash|console)?$")
)

// Steps returns the commands in a block in order, none if it is in another language than a shell's.
func (b Block) Steps() []Step {
	if !shell.MatchString(b.Language) {
		return nil
	}
	hasPrompt := false
	for _, line := range b.Lines {
		hasPrompt = hasPrompt || strings.HasPrefix(line, "$ ")
	}
	var all []Step
	goesOn := false // what the last step is waiting for
	var end *regexp.Regexp
	for i, line := range b.Lines {
		command, isPrompt := strings.CutPrefix(line, "$ ")
		switch {
		case goesOn || end != nil:
			last := &all[len(all)-1]
			last.Script += "\n" + line
			if end != nil {
				if end.MatchString(line) {
					end = nil
				}
				continue
			}
		case isPrompt || !hasPrompt && strings.TrimSpace(line) != "":
			all = append(all, Step{Line: b.Line + i, Script: command})
		default:
			if len(all) > 0 && hasPrompt {
				last := &all[len(all)-1]
				last.Shown = append(last.Shown, line)
			}
			continue
		}
		goesOn = strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|")
		if found := heredoc.FindStringSubmatch(line); found != nil && !goesOn {
			end = regexp.MustCompile(`^\s*` + found[1] + `\s*$`)
		} else if loop.MatchString(all[len(all)-1].Script) {
			end = loopEnd
		}
	}
	return all
}
