// Command texts copies the texts of Go programs, so that Vale can check them: make prose. For each
// FILE.go it writes DIR/FILE.go.txt with the string literals that have a space, each on the line
// that it has in the program.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	dir := flag.String("dir", "", "where to write")
	flag.Parse()
	for _, name := range flag.Args() {
		if err := copyTexts(*dir, name); err != nil {
			fmt.Fprintln(os.Stderr, "texts:", err)
			os.Exit(1)
		}
	}
}

// copyTexts copies the texts of one program file.
func copyTexts(dir, name string) error {
	text, err := textsOf(name)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, name+".txt")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// textsOf returns the texts of a program file, each on its line.
func textsOf(name string) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", fmt.Errorf("parsing: %w", err)
	}
	var texts strings.Builder
	line := 1
	for n := range ast.Preorder(file) {
		literal, isLiteral := n.(*ast.BasicLit)
		if !isLiteral || literal.Kind != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			return "", fmt.Errorf("reading a literal of %s: %w", name, err)
		}
		if !strings.Contains(text, " ") {
			continue
		}
		if literal.Value[0] == '"' {
			text = strings.ReplaceAll(text, "\n", " ")
		}
		start := files.Position(literal.Pos()).Line
		texts.WriteString(strings.Repeat("\n", start-line) + " " + text)
		line = start + strings.Count(text, "\n")
	}
	return texts.String() + "\n", nil
}
