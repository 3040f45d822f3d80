// Command walk types the commands of README.md that need Go alone, as a newcomer does (make walk):
// in a fresh clone of the last commit, with no program in $PATH but Go, make, git and the basic
// tools of a POSIX system. It fails if a command fails, takes longer than the page says, or prints
// something else than the page shows.
//
// page.go reads the page. newcomer.go has the clone and the environment of the commands.
// handover.go copies what takes long to build between this repository and the clone.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/test/pages"
)

// laterAttempts is how often the demo may take longer than the page says of it later: other
// programs may be busy on this machine meanwhile.
const laterAttempts = 3

func main() { story.Main("walk", run) }

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("walk", flag.ContinueOnError)
	all := flags.Bool("all", false, `type "`+pages.TestCommand+`", too`)
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nodekeeper-walk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := arrive(ctx, root, dir)
	if err != nil {
		return err
	}
	p, err := readPage(filepath.Join(n.clone, "README.md"))
	if err != nil {
		return err
	}
	built, err := takeControlPlane(ctx, n.out, root, n.clone)
	if err != nil {
		return err
	}
	if err := typeAll(ctx, n, p, *all); err != nil {
		return err
	}
	return handOver(n.clone, root, built)
}

// typeAll types the commands of the page, but for pages.TestCommand: it takes minutes, and is the
// last step of CI.
func typeAll(ctx context.Context, n *newcomer, p *page, all bool) error {
	for _, step := range p.steps {
		switch command := step.Command(); {
		case command == demoCommand:
			if err := typeDemos(ctx, n, p, step); err != nil {
				return err
			}
		case command == pages.TestCommand && !all:
			say(n.out, "%s: not typed here", command)
		default:
			if _, _, err := n.run(ctx, step.Script); err != nil {
				return err
			}
		}
	}
	return nil
}

// typeDemos types the command that shows nodekeeper at work more than once, because the page says
// how long it takes the first time, and how long after that.
func typeDemos(ctx context.Context, n *newcomer, p *page, step pages.Step) error {
	first, err := typeDemo(ctx, n, p, step)
	if err != nil {
		return err
	}
	say(n.out, "README.md allows %s on two cores, and less than %s from then on", p.first, p.later)
	if err := p.checkFirst(first); err != nil {
		return err
	}
	var tooLong error
	for range laterAttempts {
		later, err := typeDemo(ctx, n, p, step)
		if err != nil {
			return err
		}
		if tooLong = p.checkLater(later); tooLong == nil {
			return nil
		}
	}
	return tooLong
}

// typeDemo types the command once, and compares its end with the page.
func typeDemo(ctx context.Context, n *newcomer, p *page, step pages.Step) (effort, error) {
	printed, took, err := n.run(ctx, step.Script)
	if err != nil {
		return effort{}, err
	}
	return took, p.checkEnd(printed)
}
