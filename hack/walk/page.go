package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"nodekeeper.dev/test/pages"
)

const (
	demoCommand = "make demo"
	// firstPattern and laterPattern find how many minutes the page says that the demo takes.
	firstPattern = `Allow (\w+) minutes for the first run`
	laterPattern = `After that, .make demo. takes less than (\w+) minutes?`
)

// page is what README.md tells a newcomer who has Go alone.
type page struct {
	steps []pages.Step
	// summary is what the page shows of the end of the demo.
	summary []string
	// first and later are how long the demo takes according to the page: the first time, and then.
	first, later time.Duration
}

var errTooLong = errors.New("the command takes longer than the page says")

func readPage(path string) (*page, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s, %q: %w", path, pages.GoAlone, err)
	}
	return p, nil
}

func parse(content string) (*page, error) {
	section := pages.Section(content, pages.GoAlone)
	blocks, _ := pages.Parse(section)
	if len(blocks) < 2 {
		return nil, errors.New("there is no such section with a block of commands and a block with the end of the demo")
	}
	p := &page{steps: blocks[0].Steps(), summary: blocks[1].Lines}
	if !slices.ContainsFunc(p.steps, func(s pages.Step) bool { return s.Command() == demoCommand }) {
		return nil, fmt.Errorf("the block of commands does not have %q", demoCommand)
	}
	var err, laterErr error
	p.first, err = pages.Promised(section, firstPattern)
	p.later, laterErr = pages.Promised(section, laterPattern)
	return p, errors.Join(err, laterErr)
}

// check returns an error if the demo did not end as the page shows, or took longer than promised.
func (p *page) check(step pages.Step, printed string, took, promised time.Duration) error {
	shown := append([]string{"…"}, p.summary...)
	if _, agreed, same := (pages.Meanings{}).Agree(shown, strings.Split(printed, "\n")); !same {
		at := "there is more than that"
		if agreed < len(shown) {
			at = "there is no line " + shown[agreed]
		}
		return fmt.Errorf("%q does not end as README.md shows: %s", step.Script, at)
	}
	if took > promised {
		return fmt.Errorf("%q: %w: README.md says at most %s, and it took %s", step.Script, errTooLong, promised, took.Round(time.Second))
	}
	return nil
}
