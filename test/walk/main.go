// Command walk types the commands of README.md that need Go alone, as a newcomer does (make walk):
// in this checkout, in the order of the page, with no program in $PATH but Go, make, git and the
// basic tools of a POSIX system. It fails if a command fails, takes longer than the page promises,
// or prints something else than the page shows. In a fresh clone, which is what CI has, it shows
// that nothing else is needed.
//
// It needs little more than the standard library: what is compiled for the walk is missing in the
// time of the first demo. page.go reads the page. newcomer.go has the environment of the commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// laterAttempts is how often the demo may take longer than the page promises for later runs: other
// programs may be busy on this machine meanwhile.
const laterAttempts = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second time, the walk ends at once
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "walk: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	p, err := readPage(filepath.Join(root, "README.md"))
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
	return typeAll(ctx, n, p)
}

// typeAll types the commands of the page. At the end it types the demo again, because the page
// promises how long it takes the first time, and how long after that.
func typeAll(ctx context.Context, n *newcomer, p *page) error {
	for _, step := range p.steps {
		if step.Command() != demoCommand {
			if _, _, err := n.run(ctx, step.Script); err != nil {
				return err
			}
			continue
		}
		first, err := typeDemo(ctx, n, p)
		if err != nil {
			return err
		}
		if err := p.checkFirst(first); err != nil {
			return err
		}
	}
	printLine(n.out, "README.md allows %s for the first demo on two cores, and less than %s from then on", p.first, p.later)
	var tooLong error
	for range laterAttempts {
		later, err := typeDemo(ctx, n, p)
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
func typeDemo(ctx context.Context, n *newcomer, p *page) (effort, error) {
	printed, took, err := n.run(ctx, p.demo.Script)
	if err != nil {
		return effort{}, err
	}
	return took, p.checkEnd(printed)
}
