package preserve

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
)

var update = flag.Bool("update", false, "write the table of owners into docs/design.md")

// ownerCase is a row or a column of the table of owners.
type ownerCase struct {
	name                string
	state               keyState
	isSame, isWithdrawn bool
}

var (
	formerOwners = []ownerCase{
		{name: "missing"},
		{name: "user's", state: keyState{isThere: true}},
		{name: "machine's", state: keyState{isThere: true, isMachines: true}},
		{name: "machine's, copied", state: keyState{isThere: true, isMachines: true, isCopied: true}},
		{name: "unclear", state: keyState{isThere: true, isUnclear: true}},
		{name: "overruled", state: keyState{isThere: true, isOverruled: true}},
		{name: "unclear, overruled", state: keyState{isThere: true, isUnclear: true, isOverruled: true}},
	}
	laterStates = []ownerCase{
		{name: "missing"},
		{name: "withdrawn", isWithdrawn: true},
		{name: "user's, same value", state: keyState{isThere: true}, isSame: true},
		{name: "user's, another value", state: keyState{isThere: true}},
		{name: "machine's", state: keyState{isThere: true, isMachines: true}},
		{name: "unclear, same value", state: keyState{isThere: true, isUnclear: true}, isSame: true},
		{name: "unclear, another value", state: keyState{isThere: true, isUnclear: true}},
		{name: "withdrawn, then unclear at the same value", state: keyState{isThere: true, isUnclear: true}, isSame: true, isWithdrawn: true},
		{name: "overruled, then unclear at the same value", state: keyState{isThere: true, isUnclear: true, isOverruled: true}, isSame: true},
	}
	keysByKind = map[string]string{"label": "rack", "annotation": labels.AnnotationKey("rack"), "taint": labels.TaintKey("rack", "NoSchedule")}
)

// TestTableOfOwners compares the table in docs/design.md with the function. With -update it writes
// the table.
func TestTableOfOwners(t *testing.T) {
	const begin, end = "<!-- owners, written by go test ./internal/preserve -run TestTableOfOwners -update -->\n", "<!-- end of owners -->\n"
	path := filepath.Join("..", "..", "docs", "design.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, isFound := strings.Cut(string(page), begin)
	require.True(t, isFound)
	table, after, isFound := strings.Cut(rest, end)
	require.True(t, isFound)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+tableOfOwners()+end+after), 0o600))
		return
	}
	assert.Equal(t, tableOfOwners(), table)
}

func tableOfOwners() string {
	var table strings.Builder
	row := func(cells []string) { fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | ")) }
	head, rule := []string{"before \\ after"}, []string{"---"}
	for _, later := range laterStates {
		head, rule = append(head, later.name), append(rule, "---")
	}
	row(head)
	row(rule)
	for _, former := range formerOwners {
		cells := []string{"**" + former.name + "**"}
		for _, later := range laterStates {
			if later.isSame && !former.state.isThere {
				cells = append(cells, "-")
				continue
			}
			cells = append(cells, cell(former, later))
		}
		row(cells)
	}
	return table.String()
}

// cell returns the owner of a label, and of an annotation or a taint if that differs.
func cell(former, later ownerCase) string {
	of := func(kind string) string {
		return ownerText(ownerOf(keysByKind[kind], former.state, later.state, later.isSame, later.isWithdrawn))
	}
	text := of("label")
	switch annotation, taint := of("annotation"), of("taint"); {
	case annotation == text && taint != text:
		text += "; taint: " + taint
	case annotation != text && taint == annotation:
		text += "; others: " + taint
	case annotation != text:
		text += "; annotation: " + annotation + "; taint: " + taint
	}
	return text
}

func ownerText(isMachines, isUnclear, isOverruled bool) string {
	switch {
	case isMachines:
		return "machine's"
	case isUnclear && isOverruled:
		return "unclear, overruled"
	case isUnclear:
		return "unclear"
	case isOverruled:
		return "overruled"
	}
	return "user's"
}

// TestOwnerOfEveryInput checks the rules that hold for every input.
func TestOwnerOfEveryInput(t *testing.T) {
	const inputs = 1 << 11
	for kind, key := range keysByKind {
		for input := range inputs {
			bit := func(at int) bool { return input>>at&1 == 1 }
			before := keyState{isThere: bit(0), isMachines: bit(1), isUnclear: bit(2), isOverruled: bit(3), isCopied: bit(10) && bit(1)}
			after := keyState{isThere: bit(4), isMachines: bit(5), isUnclear: bit(6), isOverruled: bit(7)}
			isSame, isWithdrawn := bit(8), bit(9)
			about := fmt.Sprintf("%s: before %+v, after %+v, same %t, withdrawn %t", kind, before, after, isSame, isWithdrawn)
			isMachines, isUnclear, isOverruled := ownerOf(key, before, after, isSame, isWithdrawn)
			assert.False(t, isMachines && (isUnclear || isOverruled), about)
			if after.isMachines && !after.isUnclear {
				assert.True(t, isMachines, "agents set it last: %s", about)
			}
			if after.isOverruled {
				assert.True(t, isOverruled || isMachines, "a watcher saw it: %s", about)
			}
			if before.isOverruled && !isOverruled {
				assert.True(t, isMachines || isWithdrawn, "only agents end it: %s", about)
			}
			if kind != "label" && !after.isThere && isOverruled {
				assert.True(t, before.isOverruled || after.isOverruled, "its absence proves nothing: %s", about)
			}
			if before.isCopied && isSame {
				assert.True(t, isMachines, "no user has chosen another value: %s", about)
			}
			if after.isUnclear && !before.isCopied && !after.isMachines && (after.isOverruled || isWithdrawn) {
				assert.False(t, isMachines, "agents had lost it, and nobody knows who set it again: %s", about)
			}
			if isUnclear {
				assert.True(t, before.isUnclear || after.isUnclear, about)
			}
			if isMachines {
				assert.True(t, before.isMachines || after.isMachines, about)
			}
		}
	}
}
