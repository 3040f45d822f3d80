package programs_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
)

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
		page.WriteString("## Flags of " + enumeration(called) + "\n\n" + reference.FlagTable(t, s.flags, explained) + "\n")
		for _, f := range s.flags {
			delete(unused, f.Name)
			if reference.IsLong(f) {
				lists.WriteString("\n### `--" + f.Name + "`\n\n- `" + strings.ReplaceAll(f.DefaultValue(), ",", "`\n- `") + "`\n")
			}
		}
	}
	assert.Empty(t, unused, "no program has these flags")
	reference.Check(t, "docs/reference/flags.md", "flags", page.String()+"## Defaults that are lists\n"+lists.String())
}

// sections returns the parts of the reference. Flags that most programs have come first.
func sections(t *testing.T) []section {
	t.Helper()
	having := map[programs.Flag][]int{}
	for i, one := range documented {
		for _, f := range reference.FlagsOf(t, one.program) {
			having[f] = append(having[f], i)
		}
	}
	var all []section
	for _, f := range slices.SortedFunc(maps.Keys(having), programs.ByName) {
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

// enumeration joins words as in a sentence.
func enumeration(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
