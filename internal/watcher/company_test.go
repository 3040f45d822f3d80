package watcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
)

// latency is how long it takes until a written Lease is seen.
const latency = 10 * time.Millisecond

// company are the Leases of watchers in a synctest bubble.
type company struct {
	mu      sync.Mutex
	leases  map[string]*barrier.Peer
	changes map[string]chan struct{}
	serving map[string]bool
	wanted  map[[2]string]string // by member and annotation
}

func newCompany() *company {
	return &company{leases: map[string]*barrier.Peer{}, changes: map[string]chan struct{}{}, serving: map[string]bool{}, wanted: map[[2]string]string{}}
}

// seat is one member of a company.
type seat struct {
	*company
	name string
}

var (
	_ barrier.Members = seat{}
	_ watcher.Lease   = seat{}
)

// join adds a member.
func (c *company) join(name string) seat {
	c.change(name, func(*barrier.Peer) {})
	return seat{c, name}
}

// SyncedAt returns now: a seat is always in sync.
func (s seat) SyncedAt() time.Time { return time.Now() }

// Renew does nothing: a seat is always in sync.
func (s seat) Renew() {}

// change changes a Lease, and notifies all members.
func (c *company) change(name string, change func(*barrier.Peer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[name] == nil {
		c.leases[name] = &barrier.Peer{Name: name, UID: types.UID(name), Annotations: map[string]string{}}
		c.changes[name] = make(chan struct{}, 1)
	}
	p := *c.leases[name]
	p.Since, p.Annotations = time.Now(), maps.Clone(p.Annotations)
	change(&p)
	c.leases[name] = &p
	for _, ch := range c.changes {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// annotation returns an annotation of a Lease.
func (c *company) annotation(name, key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[name].Annotations[key]
}

// questions returns a member's questions.
func (c *company) questions(t *testing.T, name string) []barrier.Question {
	t.Helper()
	var all []barrier.Question
	if text := c.annotation(name, barrier.AsksKey); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &all))
	}
	return all
}

// answer makes the other member give one answer to all questions of this one.
func (c *company) answer(t *testing.T, reply barrier.Answer) {
	t.Helper()
	const name, asker = "other", "me"
	byNumber := map[int]barrier.Answer{}
	for _, q := range c.questions(t, asker) {
		byNumber[q.Number] = reply
	}
	text, err := json.Marshal(map[string]any{asker: byNumber})
	require.NoError(t, err)
	c.change(name, func(p *barrier.Peer) { p.Annotations[barrier.AnswersKey] = string(text) })
	synctest.Wait()
}

// answerExcept makes the other member give one answer to all questions of this one, which does not
// include some nodes.
func (c *company) answerExcept(t *testing.T, reply barrier.Answer, nodes ...string) {
	t.Helper()
	byNumber := map[int]barrier.Answer{}
	for _, q := range c.questions(t, "me") {
		byNumber[q.Number] = reply
	}
	text, err := json.Marshal(map[string]any{"held": nodes, "answers": map[string]any{"me": byNumber}})
	require.NoError(t, err)
	c.change("other", func(p *barrier.Peer) { p.Annotations[barrier.HeldKey] = string(text) })
	synctest.Wait()
}

func (s seat) Peers() []barrier.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var peers []barrier.Peer
	for name, p := range s.leases {
		if name != s.name {
			peers = append(peers, *p)
		}
	}
	return peers
}

func (s seat) Changes() <-chan struct{} { return s.changes[s.name] }

func (s seat) Annotate(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := [2]string{s.name, key}
	s.wanted[wanted] = value
	time.AfterFunc(latency, func() {
		s.change(s.name, func(p *barrier.Peer) {
			value := s.wanted[wanted] // the latest of several changes
			if p.Annotations[key] = value; value == "" {
				delete(p.Annotations, key)
			}
		})
	})
}

func (s seat) Annotation(key string) string { return s.annotation(s.name, key) }

func (s seat) SetServing(serving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving[s.name] = serving
}

func (c *company) serves(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving[name]
}

// apiServer serves lists and watches of Nodes.
type apiServer struct {
	slow    time.Duration // how long a list takes
	watches chan *watch.FakeWatcher

	mu    sync.Mutex
	nodes []metav1.PartialObjectMetadata
	at    string // the resourceVersion of a list
}

func newAPIServer(nodes ...*nodeview.Node) *apiServer {
	a := &apiServer{at: "100"}
	for _, n := range nodes {
		a.nodes = append(a.nodes, *sent(n))
	}
	return a
}

// becomes sets the contents of the next list.
func (a *apiServer) becomes(nodes ...*nodeview.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.nodes = "120", nil
	for _, n := range nodes {
		a.nodes = append(a.nodes, *sent(n))
	}
}

func (a *apiServer) listerWatcher() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			time.Sleep(a.slow)
			a.mu.Lock()
			defer a.mu.Unlock()
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: a.at}, Items: a.nodes}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, errors.New("this API server is older than lists by watch")
			}
			w := watch.NewFakeWithChanSize(10, false)
			a.watches <- w
			return w, nil
		},
	}
}

// expire ends a watch so that the informer lists again.
func expire(w *watch.FakeWatcher) {
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	w.Error(&expired)
}

// startIn runs a watcher as a member of a company, nil for none, with a real informer.
func startIn(t *testing.T, s *seat, from *apiServer, c client.WithWatch, fault ...faults.Fault) *running {
	t.Helper()
	return startListing(t, from, c, func(cfg *watcher.Config) {
		if s != nil {
			cfg.Name, cfg.Members, cfg.Lease = s.name, s, s
		}
	}, fault...)
}

func startListing(t *testing.T, from *apiServer, c client.WithWatch, change func(*watcher.Config), fault ...faults.Fault) *running {
	t.Helper()
	if from.watches == nil {
		from.watches = make(chan *watch.FakeWatcher, 10) // of this bubble
	}
	stream := &barrier.Stream{}
	nodes := stream.NewInformer(from.listerWatcher(), &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	require.NoError(t, nodes.SetTransform(received))
	if c == nil {
		c = faults.Fake().Build()
	}
	r := &running{client: c, registry: prometheus.NewRegistry(), done: make(chan error, 1)}
	cfg := watcher.Config{
		Client: faults.Client(c, fault...), Nodes: nodes, Stream: stream, Silence: watcher.DefaultSilence,
		Events: events.NewFakeRecorder(100), Metrics: r.registry,
		TransactionNamespace: transactions, MetadataNamespace: records, RecordUpdates: true,
	}
	change(&cfg)
	informerCtx, stopInformer := context.WithCancel(t.Context())
	r.run(t, &cfg)
	go nodes.RunWithContext(informerCtx)
	stop := r.cancel
	r.cancel = func() { stop(); stopInformer() }
	synctest.Wait()
	return r
}
