package pages

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is how a command is typed.
type Kind int

const (
	// Change is typed once.
	Change Kind = iota
	// Look changes nothing, so it may be repeated.
	Look
	// Build is a change whose time does not count: it is that of the machine.
	Build
	// Skip is not typed.
	Skip
)

// Treatment is how a test handles the commands of a page that begin with a prefix.
type Treatment struct {
	Prefix string
	Kind   Kind
	// Instead replaces the prefix, unless it is empty.
	Instead string
	// Why explains why a command is not typed as it is on the page. It is empty if it is.
	Why string
}

// Treatments are the treatments of a page. The first one that matches a command applies. A command
// without one is a failure.
type Treatments []Treatment

// Of returns the treatment of a command. It reports false if there is none.
func (all Treatments) Of(script string) (Treatment, bool) {
	i := slices.IndexFunc(all, func(one Treatment) bool { return strings.HasPrefix(script, one.Prefix) })
	if i < 0 {
		return Treatment{}, false
	}
	return all[i], true
}

// Check returns the problems of the treatments. Every command in a block of the page must have one.
// Every command in the text must be typed in a block, or have a reason in notTyped. A command in
// the text is code of two words or more that begins with the first word of a command in a block.
func (all Treatments) Check(p *Page, notTyped map[string]string) []string {
	var problems []string
	problem := func(format string, args ...any) {
		problems = append(problems, p.Name+fmt.Sprintf(format, args...))
	}
	used, programs := map[string]bool{}, map[string]bool{}
	for _, step := range p.Steps {
		one, isKnown := all.Of(step.Script)
		if !isKnown {
			problem(":%d: no treatment for this command: %s", step.Line, step.Script)
		}
		if one.Kind == Look && step.Shown == nil {
			problem(":%d: the page does not show what this prints: %s", step.Line, step.Script)
		}
		used[one.Prefix], programs[strings.Fields(step.Script)[0]] = true, true
	}
	for _, one := range all {
		if !used[one.Prefix] {
			problem(" has no such command: %s", one.Prefix)
		}
		if isLiteral := one.Instead == "" && one.Kind != Skip; isLiteral != (one.Why == "") {
			problem(": a reason is missing, or too many: %s", one.Prefix)
		}
	}
	named := map[string]bool{}
	for _, line := range p.Text {
		for _, code := range Spans(line.Text) {
			if words := strings.Fields(code); len(words) < 2 || !programs[words[0]] {
				continue
			}
			isTyped := slices.ContainsFunc(p.Steps, func(s Step) bool { return strings.HasPrefix(s.Script, code) })
			if !isTyped && notTyped[code] == "" {
				problem(":%d: this is neither typed nor has a reason why not: %s", line.Number, code)
			}
			named[code] = true
		}
	}
	for code := range notTyped {
		if !named[code] {
			problem(" has no such command: %s", code)
		}
	}
	return problems
}
