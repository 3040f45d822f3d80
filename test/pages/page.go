package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nodekeeper.dev/test/repository"
)

// Page is a page with commands to type.
type Page struct {
	// Name is the path of the page in the repository.
	Name    string
	Content string
	// Steps are the commands in all blocks in order, at least one.
	Steps []Step
	// Text has the lines outside of the blocks.
	Text []Line
}

// Read reads a page of this repository.
func Read(name string) (*Page, error) {
	root, err := repository.Root()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	blocks, text := Parse(string(content))
	p := &Page{Name: name, Content: string(content), Text: text}
	for _, block := range blocks {
		p.Steps = append(p.Steps, block.Steps()...)
	}
	if len(p.Steps) == 0 {
		return nil, fmt.Errorf("%s has no commands to type", name)
	}
	return p, nil
}

// Promised is [Promised] for this page.
func (p *Page) Promised(pattern string) (time.Duration, error) {
	promised, err := Promised(p.Content, pattern)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return promised, nil
}
