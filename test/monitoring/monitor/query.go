package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// maxSamples and queryTimeout are Prometheus' defaults.
	maxSamples   = 50_000_000
	queryTimeout = 2 * time.Minute
)

// Archive evaluates queries over a time of the past.
type Archive struct {
	// From and To bound the time. Step is between two points of it.
	From, To time.Time
	Step     time.Duration
	// Samples are what was scraped.
	Samples storage.Queryable
}

// Query returns the series of an expression.
func (a Archive) Query(ctx context.Context, expr string) (series promql.Matrix, err error) {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxSamples, Timeout: queryTimeout, EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
	query, err := engine.NewRangeQuery(ctx, a.Samples, nil, expr, a.From, a.To, a.Step)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("querying %s: %w", expr, err), engine.Close())
	}
	defer func() {
		query.Close()
		err = errors.Join(err, engine.Close())
	}()
	found, err := query.Exec(ctx).Matrix()
	if err != nil {
		return nil, fmt.Errorf("querying %s: %w", expr, err)
	}
	for _, one := range found { // what the engine returns is its own after the query is closed
		one.Floats = append([]promql.FPoint(nil), one.Floats...)
		series = append(series, one)
	}
	return series, nil
}

// Open opens the database that a [Scraper] has left in a directory. The caller owes it a Close.
func Open(dir string) (*tsdb.DB, error) {
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return db, nil
}
