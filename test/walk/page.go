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
	// firstPattern and laterPattern find the minutes that the page promises for the demo.
	firstPattern = `Allow (\w+) minutes for the first run on two cores`
	laterPattern = `After that, .make demo. takes less than (\w+) minutes?`
	// cores is the number of cores in firstPattern.
	cores = 2
)

// page is the part of README.md for a newcomer who has Go alone.
type page struct {
	steps []pages.Step
	// demo is the step that shows nodekeeper at work.
	demo pages.Step
	// summary is what the page shows of the end of the demo.
	summary []string
	// first and later are how long the demo takes according to the page: the first time, and then.
	first, later time.Duration
}

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
	demo := slices.IndexFunc(p.steps, func(s pages.Step) bool { return s.Command() == demoCommand })
	if demo < 0 {
		return nil, fmt.Errorf("the block of commands does not have %q", demoCommand)
	}
	p.demo = p.steps[demo]
	var err, laterErr error
	p.first, err = pages.Promised(section, firstPattern)
	p.later, laterErr = pages.Promised(section, laterPattern)
	return p, errors.Join(err, laterErr)
}

// checkEnd returns an error if the demo did not end as the page shows.
func (p *page) checkEnd(printed string) error {
	shown := append([]string{"…"}, p.summary...)
	if _, agreed, same := (pages.Meanings{}).Agree(shown, strings.Split(printed, "\n")); !same {
		at := "there is more than that"
		if agreed < len(shown) {
			at = "there is no line " + shown[agreed]
		}
		return fmt.Errorf("%q does not end as README.md shows: %s", demoCommand, at)
	}
	return nil
}

// checkFirst returns an error if the first demo took longer than the page promises. Most of it is
// compiling, and so the time is that of a machine with two cores that does nothing else.
func (p *page) checkFirst(took effort) error {
	if took.busy > cores*p.first {
		return fmt.Errorf("%q took %s of processors the first time, but README.md allows %s of each of %d", demoCommand, took.busy.Round(time.Second), p.first, cores)
	}
	return nil
}

// checkLater returns an error if a later demo took longer than the page promises.
func (p *page) checkLater(took effort) error {
	if took.elapsed > p.later {
		return fmt.Errorf("%q took %s once everything was built, but README.md states less than %s", demoCommand, took.elapsed.Round(time.Second), p.later)
	}
	return nil
}
