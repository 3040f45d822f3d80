package pages_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

// pageOf makes a page that has these steps.
func pageOf(steps ...pages.Step) *pages.Page { return &pages.Page{Name: "page.md", Steps: steps} }

var treatments = pages.Treatments{
	{Prefix: "make", Kind: pages.Skip, Why: "it is not there"},
	{Prefix: "one", Instead: "echo", Why: "it is not there"},
	{Prefix: "echo"},
	{Prefix: "cat", Kind: pages.Look},
	{Prefix: "sleep", Kind: pages.Build},
}

func TestWalkTypesAllCommands(t *testing.T) {
	w := &pages.Walk{
		Page: pageOf(
			pages.Step{Script: "make"},
			pages.Step{Script: "one a; (cat gate; echo 12 lines >file) >/dev/null &", Shown: []string{"a"}},
			pages.Step{Script: "sleep 0.3"},
			pages.Step{Script: "echo first >gate"},
			pages.Step{Script: "cat file", Shown: []string{"7 lines"}},
			pages.Step{Script: "echo anything"},
			pages.Step{Script: "echo older", Shown: []string{"newer"}},
		),
		Treatments: treatments, Shell: pages.NewShell(t, t.TempDir()), LookFor: patience, Names: strings.NewReplacer("older", "newer"),
		Adapt: func(step pages.Step, shown, came []string) ([]string, []string) {
			if step.Script == "cat file" {
				return []string{"lines"}, []string{strings.TrimPrefix(came[0], "12 ")}
			}
			return shown, came
		},
	}
	_, err := w.Shell.Run(t.Context(), "mkfifo gate")
	require.NoError(t, err)
	begin := time.Now()
	took, err := w.Type(t.Context(), t.Logf)
	require.NoError(t, err)
	assert.Less(t, took, time.Since(begin)-300*time.Millisecond, "without builds")
}

func TestWalkEndsWhereSomethingIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		step pages.Step
		want string
	}{
		"a new command":     {pages.Step{Script: "rm x"}, "no treatment for this command"},
		"a command fails":   {pages.Step{Script: "echo a && false"}, "exit code 1"},
		"a look fails":      {pages.Step{Script: "cat none", Shown: []string{"a"}}, "exit code 1"},
		"other output":      {pages.Step{Script: "echo a", Shown: []string{"b"}}, "after 0 lines that are as on the page came not this line: b"},
		"more output":       {pages.Step{Script: "echo a; echo b", Shown: []string{"a"}}, "came something more"},
		"no output":         {pages.Step{Script: "echo", Shown: []string{"a"}}, "came not this line: a"},
		"a look never does": {pages.Step{Script: "cat /dev/null", Shown: []string{"a"}}, "came not this line: a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &pages.Walk{Page: pageOf(tc.step), Treatments: treatments, Shell: pages.NewShell(t, t.TempDir())}
			_, err := w.Type(t.Context(), t.Logf)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTreatmentsFitThePage(t *testing.T) {
	p := pageOf(pages.Step{Script: "make a"}, pages.Step{Script: "one b"}, pages.Step{Script: "echo c"},
		pages.Step{Script: "cat d", Shown: []string{"d"}}, pages.Step{Script: "sleep 1"})
	p.Text = []pages.Line{{Number: 1, Text: "Type `make a`, or `make b`, but not `dog c`."}}
	notTyped := map[string]string{"make b": "for another machine"}
	assert.Empty(t, treatments.Check(p, notTyped))

	assert.Equal(t, []string{"page.md:1: this is neither typed nor has a reason why not: make b"}, treatments.Check(p, nil))
	notTyped["make c"] = "for nobody"
	assert.Equal(t, []string{"page.md has no such command: make c"}, treatments.Check(p, notTyped))
	delete(notTyped, "make c")
	p.Steps[3].Shown, p.Steps[4] = nil, pages.Step{Line: 9, Script: "rm x"}
	assert.Equal(t, []string{
		"page.md:0: the page does not show what this prints: cat d", "page.md:9: no treatment for this command: rm x",
		"page.md has no such command: sleep",
	}, treatments.Check(p, notTyped))
	unexplained := pages.Treatments{{Prefix: "echo c", Kind: pages.Skip}, {Prefix: "", Why: "none"}}
	assert.Equal(t, []string{
		"page.md: a reason is missing, or too many: echo c", "page.md: a reason is missing, or too many: ",
	}, unexplained.Check(p, notTyped))
}
