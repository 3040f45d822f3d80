// Package monitor is a Prometheus without its server: the same code scrapes programs into the same
// database and evaluates the same queries.
package monitor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// Interval is the time between two scrapes of a program.
const Interval = time.Second

// job is the name of the scrapes. The operator names them after the PodMonitor.
const job = "podMonitor/all/programs/0"

// Target is a program that is scraped, as if it ran in a pod.
type Target struct{ Program, Namespace, Pod, Address string }

// labels are what the operator makes of the PodMonitors of this repository for a pod.
func (t Target) labels() model.LabelSet {
	return model.LabelSet{
		model.AddressLabel: model.LabelValue(t.Address),
		"job":              model.LabelValue(t.Program),
		"namespace":        model.LabelValue(t.Namespace),
		"pod":              model.LabelValue(t.Pod),
		"container":        model.LabelValue(t.Program),
		"endpoint":         "metrics",
	}
}

// Scraper scrapes programs into a database. Its methods are for one goroutine at a time.
type Scraper struct {
	db      *tsdb.DB
	manager *scrape.Manager
	groups  chan map[string][]*targetgroup.Group
	running sync.WaitGroup
	err     error // of the manager; to be read when it has ended
}

// Scrape starts a scraper without targets, whose database is in a directory. The caller must
// call Close.
func Scrape(dir string) (*Scraper, error) {
	cfg, err := config.Load(fmt.Sprintf("scrape_configs: [{job_name: %s, scrape_interval: %s, scrape_timeout: %s}]", job, Interval, Interval), nil)
	if err != nil {
		return nil, fmt.Errorf("configuring scrapes: %w", err)
	}
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	s := &Scraper{db: db, groups: make(chan map[string][]*targetgroup.Group)}
	options := &scrape.Options{DiscoveryReloadInterval: model.Duration(Interval / 10)}
	if s.manager, err = scrape.NewManager(options, nil, nil, nil, db, prometheus.NewRegistry()); err == nil {
		err = s.manager.ApplyConfig(cfg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting scrapes: %w", err), db.Close())
	}
	s.running.Go(func() { s.err = s.manager.Run(s.groups) })
	return s, nil
}

// Follow makes these programs the ones that are scraped, as service discovery does.
func (s *Scraper) Follow(targets []Target) {
	group := &targetgroup.Group{Source: job}
	for _, t := range targets {
		group.Targets = append(group.Targets, t.labels())
	}
	s.groups <- map[string][]*targetgroup.Group{job: {group}}
}

// Close ends the scrapes and the database.
func (s *Scraper) Close() error {
	s.manager.Stop()
	s.running.Wait()
	return errors.Join(s.err, s.db.Close())
}
