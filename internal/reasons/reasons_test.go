package reasons_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

func TestReferenceHasTheEvents(t *testing.T) {
	var table strings.Builder
	table.WriteString("| reason | type | object | recorded by | meaning and what to do |\n| --- | --- | --- | --- | --- |\n")
	for _, e := range reasons.All() {
		_, _ = fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", e.Reason, e.Type, e.Object, strings.Join(e.Programs, ", "), e.Meaning)
	}
	reference.Check(t, "docs/reference/events.md", "events", table.String())
}

// reasonAt is the index of the reason among the arguments of functions that record events, of
// the EventRecorder and of telemetry.
var reasonAt = map[string]int{"Eventf": 3, "Warn": 1, "inform": 1}

// The test reads the code: an event is recorded with one of the reasons of this package, or by a
// function that has the reason as a parameter. Every reason is used.
func TestProgramsRecordNoOtherReason(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	unused := map[string]bool{}
	for _, e := range reasons.All() {
		unused[e.Reason] = true
	}
	made := 0
	for _, path := range sources(t, filepath.Join(root, "internal")) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if argument := reasonOf(n); argument != nil {
					made++
					assert.True(t, isReason(argument), "%s: the reason of an event is not one of this package", path)
				}
			case *ast.SelectorExpr:
				if isReason(n) {
					delete(unused, n.Sel.Name)
				}
			}
			return true
		})
	}
	assert.Greater(t, made, 10)
	assert.Empty(t, unused, "unused reasons")
}

// sources returns the files of Go code below a directory, except for those of this package.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "reasons":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			all = append(all, path)
		}
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// reasonOf returns the reason with which a call records an event, or nil if it records none.
func reasonOf(call *ast.CallExpr) ast.Expr {
	function, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod {
		return nil
	}
	at, makesEvent := reasonAt[function.Sel.Name]
	if !makesEvent || len(call.Args) <= at+1 {
		return nil
	}
	return call.Args[at]
}

// isReason reports whether an expression is a constant of this package, or a parameter named
// reason.
func isReason(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "reason"
	case *ast.SelectorExpr:
		from, isIdent := e.X.(*ast.Ident)
		return isIdent && from.Name == "reasons"
	}
	return false
}
