// Package story is the program that the demos share: a control plane of its own, the programs that
// run against it, steps with expected results, and a terminal.
package story

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// limit ends a demo that hangs. Every wait of a step has its own deadline.
	limit = 8 * time.Minute
	// KeepHeading stands above what to try while everything keeps running.
	KeepHeading = "Everything keeps running until Ctrl-C, and new events appear below. In another terminal:"
	// LookHeading stands above the commands to begin with, which are printed last.
	LookHeading = "Begin with:"
)

var (
	errInterrupted   = errors.New("interrupted")
	errNotReached    = errors.New("not reached")
	errNotAsExpected = errors.New("not everything happened as expected")
)

// Demo is what one demo adds to the program.
type Demo struct {
	Name, Title string
	// Open prepares the cluster and returns the story.
	Open func(ctx context.Context, s *Stage) (*Story, error)
}

// Story is what happens in a demo. Only Steps are required.
type Story struct {
	Steps []Step
	// Check is called after each step, and returns what else is wrong.
	Check func() error
	// Figures returns lines for the end of the summary.
	Figures func() []string
	// While everything keeps running, another terminal needs the commands in Terminal. Look has those
	// to begin with, printed last, and Guide has further ones.
	Terminal, Guide, Look string
	// Close ends what Open or a step has started, other than programs.
	Close func()
}

// Step is one part of a story.
type Step struct {
	Title   string
	Promise string // the expected result
	Run     func(context.Context) error

	err  error
	took time.Duration
}

// Main runs a demo, and ends the process with 1 if not every step had the expected result. The first
// signal ends the demo in order, the second one ends the process and its children at once.
func Main(d Demo) {
	keep := flag.Bool("keep", false, "keep everything running after the last step, until Ctrl-C")
	container := flag.String("container", "", "`name` of the container that this runs in: show commands for docker exec, and write the kubeconfig to $KUBECONFIG")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	logf.SetLogger(logr.Discard()) // logs of the libraries would interrupt the output
	klog.SetLogger(logr.Discard())
	if err := d.run(ctx, &Stage{Screen: newScreen(os.Stdout), container: *container}, *keep); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", d.Name, err)
		os.Exit(1) //nolint:forbidigo // this is the main of the demos
	}
}

func (d Demo) run(ctx context.Context, s *Stage, keep bool) error {
	context.AfterFunc(ctx, func() { s.Note("Shutting down ...") })
	s.Heading(d.Title)
	t, err := s.open(ctx, d)
	if err == nil {
		err = s.perform(ctx, t, keep)
	} else if ctx.Err() != nil {
		err = errInterrupted
	}
	if t != nil && t.Close != nil {
		t.Close()
	}
	return errors.Join(err, s.close())
}

// perform plays the story, and then keeps everything running if keep is set.
func (s *Stage) perform(ctx context.Context, t *Story, keep bool) error {
	err := s.play(ctx, t)
	if ctx.Err() != nil {
		return errInterrupted
	}
	s.summary(t, err)
	if err != nil {
		s.saveLogs()
	}
	if keep {
		s.guide(t)
		<-ctx.Done() // Ctrl-C is no error here
	}
	return err
}

// guide prints what to try while everything keeps running. The commands to begin with come last,
// where they stay in sight.
func (s *Stage) guide(t *Story) {
	s.Heading(KeepHeading)
	s.Note("\n" + t.Terminal + t.Guide)
	if s.container == "" { // docker exec finds no kill in the image
		s.Note("\nTo end a process:\n")
		for _, p := range s.running {
			s.Note(fmt.Sprintf("  kill -9 %d   # %s", p.PID(), p.Identity))
		}
	}
	s.Note("\n" + LookHeading + "\n\n" + t.Look)
}

// play runs the steps until one fails, or the limit has passed.
func (s *Stage) play(ctx context.Context, t *Story) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for i := range t.Steps {
		st := &t.Steps[i]
		if err != nil {
			st.err = errNotReached
			continue
		}
		s.Heading(fmt.Sprintf("%d/%d  %s", i+1, len(t.Steps), st.Title))
		start := time.Now()
		st.err = errors.Join(st.Run(ctx), s.check())
		if t.Check != nil {
			st.err = errors.Join(st.err, t.Check())
		}
		st.took = time.Since(start)
		switch {
		case st.err == nil:
			s.result(true, st.Promise)
		case errors.Is(ctx.Err(), context.Canceled):
			s.result(false, errInterrupted.Error())
		default:
			s.result(false, st.err.Error())
		}
		if st.err != nil {
			err = errNotAsExpected
		}
	}
	return err
}

// summary prints the outcome of every step, and the figures.
func (s *Stage) summary(t *Story, err error) {
	s.Heading("Summary")
	for i, st := range t.Steps {
		text := fmt.Sprintf("%d  %s", i+1, st.Promise)
		switch {
		case st.err == nil:
			text = fmt.Sprintf("%-80s %7s", text, InSeconds(st.took))
		case errors.Is(st.err, errNotReached):
			text += " (not reached)"
		}
		s.result(st.err == nil, text)
	}
	s.Note("")
	if t.Figures != nil {
		for _, line := range t.Figures() {
			s.Note("  " + line)
		}
		s.Note("")
	}
	if err == nil {
		s.Note(fmt.Sprintf("  Everything happened as expected, in %s.", InSeconds(time.Since(s.start))))
	}
}
