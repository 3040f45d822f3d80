// Command picture draws the dashboard of deploy/monitoring (make monitoring DRAW=1). It lets nodes
// go and come back in a cluster with nodekeeper's built programs, scrapes these as Prometheus does,
// evaluates the queries of all panels over what was scraped by Prometheus' own engine, and draws
// the panels where the dashboard has them. With -draw it draws the run of last time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/test/monitoring/cluster"
	"nodekeeper.dev/test/monitoring/grafana"
	"nodekeeper.dev/test/monitoring/monitor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends this process and its children at once
	// Logs of the libraries would interrupt the output.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context) error {
	dashboard := flag.String("dashboard", filepath.Join("deploy", "monitoring", "dashboard.json"), "the `file` of the dashboard")
	run := flag.String("run", filepath.Join("bin", "monitoring", "run"), "the `directory` of the run: what was scraped, and what happened")
	file := flag.String("o", filepath.Join("docs", "pictures", "dashboard.svg"), "the `file` of the picture")
	draws := flag.Bool("draw", false, "draw the run that is there, instead of a new one")
	flag.Parse()
	if !*draws {
		if err := record(ctx, *run); err != nil {
			return err
		}
	}
	return picture(ctx, *dashboard, *run, *file)
}

// samplesOf and storyOf are where a run keeps what was scraped and what happened.
func samplesOf(run string) string { return filepath.Join(run, "samples") }
func storyOf(run string) string   { return filepath.Join(run, "story.json") }

// record makes a run, in place of the one that may be there.
func record(ctx context.Context, run string) (err error) {
	if err := errors.Join(os.RemoveAll(samplesOf(run)), os.MkdirAll(run, 0o755)); err != nil {
		return err
	}
	scraper, err := monitor.Scrape(samplesOf(run))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scraper.Close()) }()
	c, err := cluster.Start(scraper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	story, err := c.Play(ctx, func(e cluster.Event) { fmt.Fprintln(os.Stderr, e.At.Format(time.TimeOnly), e.What) })
	if err != nil {
		return err
	}
	content, err := json.MarshalIndent(story, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(storyOf(run), append(content, '\n'), 0o600)
}

// picture draws a run.
func picture(ctx context.Context, dashboard, run, file string) (err error) {
	content, err := os.ReadFile(dashboard)
	if err != nil {
		return err
	}
	d, err := grafana.Parse(content)
	if err != nil {
		return err
	}
	story, err := readStory(run)
	if err != nil {
		return err
	}
	db, err := monitor.Open(samplesOf(run))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	archive := monitor.Archive{From: story.From, To: story.To, Step: monitor.Interval, Samples: db}
	shown, err := evaluate(ctx, d, archive)
	if err != nil {
		return err
	}
	return os.WriteFile(file, draw(d.Title, about(archive), shown, story), 0o600)
}

func readStory(run string) (story cluster.Story, err error) {
	content, err := os.ReadFile(storyOf(run))
	if err != nil {
		return cluster.Story{}, err
	}
	if err := json.Unmarshal(content, &story); err != nil {
		return cluster.Story{}, fmt.Errorf("reading %s: %w", storyOf(run), err)
	}
	return story, nil
}

// about describes what is shown.
func about(archive monitor.Archive) string {
	return fmt.Sprintf("a run of real programs, scraped each second; $__rate_interval is %s", intervalOf(archive).Rate())
}
