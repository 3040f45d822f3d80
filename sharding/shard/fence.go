package shard

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fence returns a context that ends with ctx, and when this shard loses the right to act; then its cause
// is [ErrLeaseLost]. Use it for effects outside of the cluster in code that has no context of a
// reconciler, and check it just before each effect.
func (s *Shard) Fence(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.options.Standalone {
		return context.WithCancel(ctx)
	}
	ctx, cancel := s.right.bound(ctx, ErrLeaseLost)
	if s.right.isLost() { // nobody may have noticed yet
		<-ctx.Done()
	}
	return ctx, cancel
}

// newClient returns a function that makes a client that refuses requests when the shard may not act.
func (s *Shard) newClient(next client.NewClientFunc) client.NewClientFunc {
	if next == nil {
		next = client.New
	}
	return func(cfg *rest.Config, o client.Options) (client.Client, error) {
		cfg = rest.CopyConfig(cfg)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{s, next} })
		httpClient, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, err //nolint:wrapcheck // the manager says what failed
		}
		o.HTTPClient = httpClient
		return next(cfg, o)
	}
}

// fenced is a transport that sends requests only while a shard may act.
type fenced struct {
	of   *Shard
	next http.RoundTripper
}

// RoundTrip sends a request unless the shard has lost the right to act, and cuts it off when it does. A
// write waits until the right begins; a read does not need it.
func (f fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	r := f.of.right
	if req.Method != http.MethodGet {
		if err := r.await(req.Context()); err != nil && !r.isLost() {
			return nil, err
		}
	}
	ctx, cancel := r.bound(req.Context(), ErrFenced)
	if r.isLost() { // as late as possible: a frozen process wakes up anywhere
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
		return nil, err //nolint:wrapcheck // a transport passes on what it wraps
	}
	resp.Body = body{resp.Body, cancel}
	return resp, nil
}

// fence returns a config of clients that send nothing once the right is over. A process that was frozen may
// wake up when its Lease is due: a renewal would keep the objects of this shard from others, or bring back
// a Lease that the sharder has deleted.
func (r *right) fence(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return ending{r, next} })
	return cfg
}

// ending is a transport that sends requests until a right is over.
type ending struct {
	right *right
	next  http.RoundTripper
}

// RoundTrip sends a request unless the right is over.
func (e ending) RoundTrip(req *http.Request) (*http.Response, error) {
	if e.right.isLost() {
		return nil, ErrFenced
	}
	return e.next.RoundTrip(req) //nolint:wrapcheck // a transport passes on what it wraps
}

// body is that of an answer, which is cut off when the shard loses the right to act.
type body struct {
	io.ReadCloser

	end context.CancelFunc
}

// Close closes the body.
func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close() //nolint:wrapcheck // it passes on what it wraps
}
