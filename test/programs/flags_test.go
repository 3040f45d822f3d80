package programs_test

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
)

// maxInline is the maximum length of a default in a table. Longer ones are lists below the tables.
const maxInline = 60

// documented are the programs in the reference of flags, in its order, with their names in
// headings.
var documented = []struct{ program, called string }{
	{"watcher", "the watcher"},
	{"processor", "the processor"},
	{"webhook", "the webhook"},
	{"ui", "the live page"},
}

// explained are the pages with further information about a flag.
var explained = map[string]string{
	"gate":                 "[The gate](../explanation/admission.md#the-gate)",
	"hold-back":            "[Hold labels back](../how-to/use-the-webhook.md#hold-labels-back-that-a-policy-of-yours-refuses)",
	"ignore-labels":        "[Labels that are ignored](../explanation/labels.md#labels-that-are-ignored)",
	"live-labels":          "[What a restore does](../explanation/labels.md#what-a-restore-does)",
	"machine-managers":     "[Agents](../explanation/labels.md#agents)",
	"node-selector":        "[Nodes that are not selected](../explanation/labels.md#nodes-that-are-not-selected)",
	"port":                 "[The live page](../how-to/use-the-live-page.md)",
	"preserve-annotations": "[Keep taints and annotations](../how-to/keep-taints-and-annotations.md)",
	"preserve-taints":      "[Keep taints and annotations](../how-to/keep-taints-and-annotations.md)",
	"protect":              "[Protect nodes with the finalizer](../how-to/protect-nodes.md)",
	"restricted-labels":    "[Restricted labels](../explanation/labels.md#restricted-labels)",
	"retention":            "[Remove records of nodes that are gone](../how-to/retention.md)",
	"rotate-certificate":   "[The certificate](../explanation/admission.md#the-certificate)",
	"same-machine-labels":  "[Labels of a machine](../explanation/labels.md#labels-of-a-machine)",
	"wait-for-cluster":     "[Probes](probes.md)",
}

// section is a part of the reference: flags that the same programs have with the same meaning.
type section struct {
	programs []int // indexes in documented
	flags    []programs.Flag
}

func TestReferenceHasTheFlags(t *testing.T) {
	var page, lists strings.Builder
	unused := maps.Clone(explained)
	for _, s := range sections(t) {
		var called []string
		for _, i := range s.programs {
			called = append(called, documented[i].called)
		}
		page.WriteString("## Flags of " + enumeration(called) + "\n\n" + table(t, s.flags, explained) + "\n")
		for _, f := range s.flags {
			delete(unused, f.Name)
			if isLong(f) {
				lists.WriteString("\n### `--" + f.Name + "`\n\n- `" + strings.ReplaceAll(f.DefaultValue(), ",", "`\n- `") + "`\n")
			}
		}
	}
	assert.Empty(t, unused, "no program has these flags")
	reference.CheckPage(t, "docs/reference/flags.md", "flags", page.String()+"## Defaults that are lists\n"+lists.String())
}

func TestReferenceHasTheFlagsOfTheSharder(t *testing.T) {
	reference.Check(t, "flags", table(t, flagsOf(t, "sharder"), nil))
}

// sections returns the parts of the reference. Flags that most programs have come first.
func sections(t *testing.T) []section {
	t.Helper()
	having := map[programs.Flag][]int{}
	for i, one := range documented {
		for _, f := range flagsOf(t, one.program) {
			having[f] = append(having[f], i)
		}
	}
	var all []section
	for _, f := range slices.SortedFunc(maps.Keys(having), byName) {
		has := having[f]
		at := slices.IndexFunc(all, func(s section) bool { return slices.Equal(s.programs, has) })
		if at < 0 {
			at, all = len(all), append(all, section{programs: has})
		}
		all[at].flags = append(all[at].flags, f)
	}
	slices.SortFunc(all, func(a, b section) int {
		return cmp.Or(cmp.Compare(len(b.programs), len(a.programs)), slices.Compare(a.programs, b.programs))
	})
	return all
}

// flagsOf returns the flags of a program except --help. It fails for a flag without a definite
// default.
func flagsOf(t *testing.T, program string) []programs.Flag {
	t.Helper()
	flags, err := programs.Flags(t.Context(), program)
	require.NoError(t, err)
	delete(flags, "help")
	require.NotEmpty(t, flags)
	for _, f := range flags {
		assert.True(t, f.Default != "" || f.Value == "", "--%s of %s: say the default in the usage: (default none)", f.Name, program)
		assert.NotContains(t, f.Default, "(default", "--%s of %s has two defaults", f.Name, program)
	}
	return slices.SortedFunc(maps.Values(flags), byName)
}

func byName(a, b programs.Flag) int { return cmp.Compare(a.Name, b.Name) }

// table returns the table of flags, with links to the pages in links.
func table(t *testing.T, flags []programs.Flag, links map[string]string) string {
	t.Helper()
	var rows strings.Builder
	rows.WriteString("| flag | meaning | default |\n| --- | --- | --- |\n")
	for _, f := range flags {
		require.NotContains(t, f.Usage, "|", "--%s", f.Name)
		name, meaning := "--"+f.Name, markCode(f.Usage)
		if len(f.Name) == 1 {
			name = "-" + f.Name
		}
		if link := links[f.Name]; link != "" {
			meaning = strings.TrimSuffix(meaning, ".") + ". See " + link
		}
		rows.WriteString(strings.TrimRight("| `"+name+"` | "+meaning+" | "+defaultCell(f), " ") + " |\n")
	}
	return rows.String()
}

func isLong(f programs.Flag) bool { return len(f.Default) > maxInline }

// defaultCell returns the table cell of the default.
func defaultCell(f programs.Flag) string {
	switch {
	case f.Name == "version": // has a different effect
		return ""
	case f.Default == "": // a boolean flag
		return "`false`"
	case isLong(f):
		return "[a list](#--" + f.Name + ")"
	case f.Default == "none" || strings.Contains(f.Default, " "): // a description instead of a value
		return markCode(f.Default)
	}
	return "`" + f.DefaultValue() + "`"
}

// word matches a quoted string, or a word with a following colon or full stop.
var word = regexp.MustCompile(`"[^"]*"|[^\s"(),;]+`)

// markCode returns a text of --help with its code in backticks: quoted strings, keys, patterns,
// paths and variables.
func markCode(text string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if inQuotes := strings.Trim(w, `"`); inQuotes != w {
			return "`" + inQuotes + "`"
		}
		code := strings.TrimRight(w, ":.")
		if strings.ContainsAny(code, "/*$") || strings.HasPrefix(code, ":") || strings.HasPrefix(code, "--") {
			return "`" + code + "`" + w[len(code):]
		}
		return w
	})
}

// enumeration joins words as in a sentence.
func enumeration(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
