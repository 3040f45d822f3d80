// Command picture draws the dashboard of a product (make monitoring DRAW=1). It plays a story in a
// cluster with the built programs, such as nodes that go and come back, scrapes these as Prometheus
// does, evaluates the queries of all panels over what was scraped by Prometheus' own engine, and draws
// the panels where the dashboard has them. It fails if a query finds nothing in the whole run, unless
// the dashboard has words for that. With -draw it draws the run of last time.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
	product := flag.String("product", "nodekeeper", "the product: `nodekeeper, sharder or placement`")
	file := flag.String("o", "", "the `file` of the picture, instead of that in the product's docs")
	draws := flag.Bool("draw", false, "draw the run that is there, instead of a new one")
	flag.Parse()
	i := slices.IndexFunc(cluster.Plots(), func(p cluster.Plot) bool { return p.Name == *product })
	if i < 0 {
		return fmt.Errorf("there is no product %q", *product)
	}
	dir := map[string]string{"sharder": "sharding", "placement": "placement"}[*product]
	run := filepath.Join("bin", "monitoring", "run", *product)
	if !*draws {
		if err := record(ctx, run, cluster.Plots()[i]); err != nil {
			return err
		}
	}
	to := cmp.Or(*file, filepath.Join(dir, "docs", "pictures", "dashboard.svg"))
	return picture(ctx, filepath.Join(dir, "deploy", "monitoring", "dashboard.json"), run, to)
}

// samplesOf and storyOf are where a run keeps what was scraped and what happened.
func samplesOf(run string) string { return filepath.Join(run, "samples") }
func storyOf(run string) string   { return filepath.Join(run, "story.json") }

// record makes a run, in place of the one that may be there.
func record(ctx context.Context, run string, plot cluster.Plot) (err error) {
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
	story, err := c.Play(ctx, plot, func(e cluster.Event) { fmt.Fprintln(os.Stderr, e.At.Format(time.TimeOnly), e.What) })
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
	if err := complete(shown); err != nil {
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
