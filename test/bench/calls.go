package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"nodekeeper.dev/test/metrics"
)

// call is a kind of request in the metrics of the API server.
type call struct{ resource, verb string }

// calls is the number of requests of each kind, in total or per node.
type calls map[call]float64

// counted are the resources that nodekeeper and its user request. The API server itself requests
// others.
var counted = []string{"nodes", "configmaps", "leases", "events"}

// writes are the verbs that change something.
var writes = []string{"POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION"}

// served contains the counters of the API server since it started.
type served struct {
	calls   calls
	answers answers
}

// served reads the metrics of the API server.
func (c *cluster) served(ctx context.Context) (served, error) {
	families, err := metrics.OfAPIServer(ctx, c.plane.Config)
	if err != nil {
		return served{}, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	return served{callsOf(families), answersOf(families)}, nil
}

// calls returns the number of requests since the API server started.
func (c *cluster) calls(ctx context.Context) (calls, error) {
	all, err := c.served(ctx)
	return all.calls, err
}

// callsOf returns the number of requests, regardless of the response.
//
// The metrics do not identify the client. This is not necessary: the user creates and deletes
// Nodes, which nodekeeper never does, and the observer only watches. Watches are omitted, as the
// API server counts them when they end.
func callsOf(families map[string]*dto.MetricFamily) calls {
	all := calls{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		one := call{resource: metrics.Label(metric, "resource"), verb: metrics.Label(metric, "verb")}
		if slices.Contains(counted, one.resource) && one.verb != "WATCH" {
			all[one] += metric.GetCounter().GetValue()
		}
	}
	return all
}

// since returns the requests after before, without the user's creates and deletes of Nodes.
func (a calls) since(before calls) calls {
	delta := calls{}
	for one, count := range a {
		isUsers := one.resource == "nodes" && (one.verb == "POST" || one.verb == "DELETE")
		if count > before[one] && !isUsers {
			delta[one] = count - before[one]
		}
	}
	return delta
}

// per divides every count.
func (a calls) per(count float64) calls {
	each := calls{}
	for one, n := range a {
		each[one] = n / count
	}
	return each
}

// writes sums the requests that change objects, and reads the others.
func (a calls) writes() float64 { return a.sum(true) }
func (a calls) reads() float64  { return a.sum(false) }

func (a calls) sum(isWrite bool) float64 {
	sum := 0.0
	for one, n := range a {
		if slices.Contains(writes, one.verb) == isWrite {
			sum += n
		}
	}
	return sum
}

// sorted returns the kinds of requests by resource and verb.
func (a calls) sorted() []call {
	all := make([]call, 0, len(a))
	for one := range a {
		all = append(all, one)
	}
	slices.SortFunc(all, func(x, y call) int { return cmp.Or(cmp.Compare(x.resource, y.resource), cmp.Compare(x.verb, y.verb)) })
	return all
}
