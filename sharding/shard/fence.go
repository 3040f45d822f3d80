package shard

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fence returns a context that ends when ctx ends or this shard loses the right to act; in the
// latter case its cause is [ErrLeaseLost]. Use it for effects outside the cluster in code that does
// not run in a reconciler, and check it immediately before each effect. The caller must call the
// returned function to release resources.
func (s *Shard) Fence(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.options.Standalone {
		return context.WithCancel(ctx)
	}
	ctx, cancel := s.right.bound(ctx, ErrLeaseLost)
	if s.right.isLost() { // the goroutine of the context may not have run yet
		<-ctx.Done()
	}
	return ctx, cancel
}

// newClient returns a constructor of clients that refuse requests while the shard may not act.
func (s *Shard) newClient(next client.NewClientFunc) client.NewClientFunc {
	if next == nil {
		next = client.New
	}
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		cfg = rest.CopyConfig(cfg)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{s, next} })
		httpClient, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, err //nolint:wrapcheck // the manager adds the context
		}
		o.HTTPClient = httpClient
		return next(cfg, o)
	}
}

// fenced is a transport that sends requests only while the shard may act.
type fenced struct {
	of   *Shard
	next http.RoundTripper
}

// RoundTrip sends a request unless the shard has lost the right to act, and aborts it if the shard
// loses that right meanwhile. A write waits until the right begins; a read does not.
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	r := f.of.right
	if req.Method != http.MethodGet {
		if err := r.await(req.Context()); err != nil && !r.isLost() {
			return nil, err
		}
	}
	ctx, cancel := r.bound(req.Context(), ErrFenced)
	if r.isLost() { // check as late as possible: a frozen process can resume at any point
		cancel()
		f.of.metrics.fenced.Inc()
		return nil, ErrFenced
	}
	resp, err := f.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		if r.isLost() {
			return nil, ErrFenced
		}
		return nil, err //nolint:wrapcheck // a transport returns the error of the one that it wraps
	}
	resp.Body = body{resp.Body, cancel}
	return resp, nil
}

// fence returns a client config whose requests are refused once the right has ended. A frozen
// process may resume when its Lease is due; a renewal would then keep the objects of this shard
// from other shards, or recreate a Lease that the sharder has deleted.
func (r *right) fence(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return ending{r, next} })
	return cfg
}

// ending is a transport that refuses requests once a right has ended.
type ending struct {
	right *right
	next  http.RoundTripper
}

// RoundTrip sends a request unless the right has ended.
func (e ending) RoundTrip(req *http.Request) (*http.Response, error) {
	if e.right.isLost() {
		return nil, ErrFenced
	}
	return e.next.RoundTrip(req) //nolint:wrapcheck // a transport returns the error of the one that it wraps
}

// body is a response body whose request is aborted when the shard loses the right to act.
type body struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close closes the body and releases the context of the request.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // it returns the error of the body that it wraps
}
