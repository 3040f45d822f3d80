package barrier

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/revision"
)

// Stream tracks what an informer of Nodes receives from the API server: its lists, its events, and
// how many of these the watcher has handled. The zero value is ready to use. It is safe for
// concurrent use.
type Stream struct {
	// Joined blocks until the watcher is a member of its group, or ctx is done. Nothing is listed
	// before, so that other watchers know that they must ask this one. Nil does not block.
	Joined func(ctx context.Context)

	mu        sync.Mutex
	lists     []listing
	paged     listing           // a list that is still missing pages
	delivered revision.Revision // the last delivered to the informer
	handled   revision.Revision // everything up to here is handled
	open      []delivery        // delivered to the informer but not handled
	digest    Digest            // of the nodes that are handled
	changed   func()            // called after each list
	moved     func()            // called after any other change
}

// Listed returns the Stream of an informer that lists once and misses nothing.
func Listed() *Stream { return &Stream{lists: []listing{{at: revision.MustParse("1")}}} }

// listing is a list of all Nodes.
type listing struct {
	after  revision.Revision // the last revision observed before it
	at     revision.Revision // its resourceVersion
	newest revision.Revision // the highest one of its Nodes
	digest Digest
}

// delivery is an event delivered to the informer.
type delivery struct {
	node string
	at   revision.Revision
}

// NewInformer is a value for cache.Options.NewInformer. It attaches the Stream to the informer of
// Nodes, of their metadata or of whole ones, and leaves others as usual.
func (s *Stream) NewInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *corev1.Node:
		lw = &followed{ListerWatcher: lw, lw: toolscache.ToListerWatcherWithContext(lw), stream: s}
	}
	return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
}

// followed is a ListerWatcher tracked by a Stream.
type followed struct {
	toolscache.ListerWatcher // its methods without context are deprecated and never called

	lw     toolscache.ListerWatcherWithContext
	stream *Stream
}

var _ toolscache.ListerWatcherWithContext = (*followed)(nil)

// ListWithContext lists page by page.
func (f *followed) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	f.stream.waitToJoin(ctx)
	if options.Continue == "" {
		f.stream.beginPages()
	}
	list, err := f.lw.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return list, f.stream.page(list)
}

// WatchWithContext watches, or lists by a watch that starts with the existing objects (KEP-3157).
func (f *followed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	f.stream.waitToJoin(ctx)
	w, err := f.lw.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return f.stream.follow(w, options.SendInitialEvents != nil && *options.SendInitialEvents), nil
}

func (s *Stream) waitToJoin(ctx context.Context) {
	if s.Joined != nil {
		s.Joined(ctx)
	}
}

// beginPages prepares for the pages of another list, which is about to be requested.
func (s *Stream) beginPages() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paged = listing{}
}

// page receives a page of a list.
func (s *Stream) page(list runtime.Object) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err //nolint:wrapcheck // the informer adds the context
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		if n, ok := obj.(metav1.Object); ok {
			s.paged.add(n)
		}
		return nil
	})
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if m.GetContinue() == "" {
		s.paged.at = revision.Of(m.GetResourceVersion())
		s.listed(s.paged)
	}
	return nil
}

func (l *listing) add(n metav1.Object) {
	l.newest = revision.Max(l.newest, revision.Of(n.GetResourceVersion()))
	l.digest = l.digest.Add(n.GetName(), n.GetUID())
}

// listed receives a complete list. mu must be held.
func (s *Stream) listed(l listing) {
	l.after = s.delivered
	s.lists = append(s.lists, l)
	s.delivered = revision.Max(s.delivered, l.at)
	s.settle()
	if s.changed != nil {
		s.changed()
	}
}

// follow returns a watch that passes its events to the Stream before it delivers them. With lists,
// the watch begins with the existing objects, and with what changes until the bookmark that ends
// them.
func (s *Stream) follow(w watch.Interface, lists bool) watch.Interface {
	initial := listing{}
	uids := map[string]types.UID{} // of the list so far, by name
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		n, ok := e.Object.(metav1.Object)
		if !ok {
			return e, true // an error
		}
		at := revision.Of(n.GetResourceVersion())
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case !lists:
			s.deliver(e.Type, n.GetName(), at)
		case e.Type == watch.Deleted:
			delete(uids, n.GetName())
		case e.Type != watch.Bookmark:
			uids[n.GetName()] = n.GetUID()
			initial.newest = revision.Max(initial.newest, at)
		case n.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			for name, uid := range uids {
				initial.digest = initial.digest.Add(name, uid)
			}
			lists, initial.at, uids = false, at, nil
			s.listed(initial)
		}
		return e, true
	})
}

// deliver records an event that is delivered to the informer. mu must be held.
func (s *Stream) deliver(typ watch.EventType, node string, at revision.Revision) {
	if !at.After(s.delivered) {
		return
	}
	s.delivered = at
	if typ != watch.Bookmark {
		s.open = append(s.open, delivery{node, at})
	}
	s.settle()
	s.notifyMoved()
}

// settle marks everything delivered as handled if no event is open. mu must be held.
func (s *Stream) settle() {
	if len(s.open) == 0 {
		s.handled = s.delivered
	}
}

func (s *Stream) notifyMoved() {
	if s.moved != nil {
		s.moved()
	}
}

// Handled records that the watcher has handled the event of a node at a revision, and so all
// earlier ones of that node.
func (s *Stream) Handled(node string, at revision.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := revision.Revision{}
	if len(s.open) > 0 {
		first = s.open[0].at
	}
	s.open = slices.DeleteFunc(s.open, func(d delivery) bool { return d.node == node && !d.at.After(at) })
	if len(s.open) > 0 && s.open[0].at != first {
		s.handled = first
	}
	s.settle()
	s.notifyMoved()
}

// Replace records another incarnation of a node. An empty UID means that there is none.
func (s *Stream) Replace(node string, before, after types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != "" {
		s.digest = s.digest.Remove(node, before)
	}
	if after != "" {
		s.digest = s.digest.Add(node, after)
	}
}

// Position returns the revision up to which everything is handled, and the digest of the handled
// nodes.
func (s *Stream) Position() (revision.Revision, Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled, s.digest
}

// Delivered returns the latest revision that the informer has received, or zero if it is unknown.
func (s *Stream) Delivered() revision.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delivered
}

// Origin returns the number of the list on which a state of a node builds, and whether the state
// was observed after it rather than concluded from it.
func (s *Stream) Origin(at revision.Revision) (list int, observed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range slices.Backward(s.lists) {
		switch {
		case at.After(l.at):
			return i, true
		case at.After(l.after):
			return i, false
		}
	}
	return 0, false
}

// Latest returns the number of the latest list, or -1 if there is none.
func (s *Stream) Latest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lists) - 1
}

// Question returns the question to ask others about a list.
func (s *Stream) Question(list int) Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[list]
	return Question{Number: list, List: l.at, Newest: l.newest, Digest: l.digest}
}
