package watcher

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/revision"
)

// Stream follows what an informer of Nodes receives from the API server: its lists, its events, and
// how many of these the watcher has handled. The zero value is ready, and safe for concurrent use.
type Stream struct {
	// Joined blocks until the watcher is a member of its group, or ctx is done: nothing is listed
	// before others can know that this watcher must be asked. Nil does not block.
	Joined func(ctx context.Context)

	mu        sync.Mutex
	lists     []listing
	paged     listing           // of which not all pages have come
	delivered revision.Revision // the last that was given to the informer
	handled   revision.Revision // everything up to here is handled
	open      []delivery        // given to the informer and not handled
	digest    Digest            // of the nodes that are handled
	watch     watch.Interface
	forced    int    // how often Relist was called
	listedFor int    // the value of forced when the latest list was requested
	changed   func() // is told of lists
	moved     func() // is told of everything else
}

// listing is a list of all Nodes.
type listing struct {
	after  revision.Revision // the last that was observed before it
	at     revision.Revision // its resourceVersion
	newest revision.Revision // that of the Node that changed last
	digest Digest
	forced int // how often Relist was called before it was requested
}

// delivery is an event that the informer was given.
type delivery struct {
	node string
	at   revision.Revision
}

// NewInformer is for cache.Options.NewInformer: the Stream follows the informer of Nodes, metadata
// only. Others are as usual.
func (s *Stream) NewInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, node := obj.(*metav1.PartialObjectMetadata); !node {
		return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
	}
	followed := &followed{ListerWatcher: lw, lw: toolscache.ToListerWatcherWithContext(lw), stream: s}
	return toolscache.NewSharedIndexInformer(followed, obj, resync, indexers)
}

// followed is a ListerWatcher that a Stream follows.
type followed struct {
	toolscache.ListerWatcher // its methods without context are deprecated; nobody calls them

	lw     toolscache.ListerWatcherWithContext
	stream *Stream
}

var _ toolscache.ListerWatcherWithContext = (*followed)(nil)

// ListWithContext lists by pages.
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

// WatchWithContext watches, or lists by a watch that begins with what is there (KEP-3157).
func (f *followed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	f.stream.waitToJoin(ctx)
	lists := options.SendInitialEvents != nil && *options.SendInitialEvents
	forced, expired := f.stream.beginWatch()
	if expired && !lists {
		return nil, errExpired()
	}
	w, err := f.lw.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if w = f.stream.follow(w, lists, forced); w == nil {
		return nil, errExpired()
	}
	return w, nil
}

// errExpired is the answer that makes an informer list again.
func errExpired() error { return apierrors.NewResourceExpired("the watcher was silent for too long") }

func (s *Stream) waitToJoin(ctx context.Context) {
	if s.Joined != nil {
		s.Joined(ctx)
	}
}

// beginPages prepares for the pages of another list, which is about to be requested.
func (s *Stream) beginPages() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paged = listing{forced: s.forced}
}

// beginWatch returns how often Relist was called, for follow, and whether there was no list since.
func (s *Stream) beginWatch() (forced int, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forced, s.listedFor < s.forced
}

// page takes a page of a list.
func (s *Stream) page(list runtime.Object) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return err //nolint:wrapcheck // the informer says what it was doing
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

// listed takes a complete list. mu must be held.
func (s *Stream) listed(l listing) {
	l.after = s.delivered
	s.lists = append(s.lists, l)
	s.delivered = revision.Max(s.delivered, l.at)
	s.listedFor = l.forced // if Relist was called since the request, the list is too old already
	s.settle()
	if s.changed != nil {
		s.changed()
	}
}

// follow returns a watch that tells the Stream of its events before it delivers them. It stops w
// and returns nil if Relist was called since the request, when there was nothing yet to stop.
func (s *Stream) follow(w watch.Interface, lists bool, forced int) watch.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forced != forced {
		w.Stop()
		return nil
	}
	initial := listing{forced: forced}
	followed := watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
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
		case e.Type != watch.Bookmark:
			initial.add(n)
		case n.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			lists, initial.at = false, at
			s.listed(initial)
		}
		return e, true
	})
	s.watch = followed
	return followed
}

// deliver takes an event that the informer is given. mu must be held.
func (s *Stream) deliver(typ watch.EventType, node string, at revision.Revision) {
	if !at.After(s.delivered) {
		return
	}
	s.delivered = at
	if typ != watch.Bookmark {
		s.open = append(s.open, delivery{node, at})
	}
	s.settle()
	s.tell()
}

// settle moves on to what is delivered if all of it is handled. mu must be held.
func (s *Stream) settle() {
	if len(s.open) == 0 {
		s.handled = s.delivered
	}
}

func (s *Stream) tell() {
	if s.moved != nil {
		s.moved()
	}
}

// Handled notes that the watcher has handled the event of a node at a revision, and so all before
// it of that node.
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
	s.tell()
}

// Replace notes that the watcher knows of another incarnation of a node, or of none; no uid stands
// for none.
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

// Position returns up to which revision everything is handled, and the digest of the nodes that
// are.
func (s *Stream) Position() (revision.Revision, Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled, s.digest
}

// Origin returns the number of the list that a state of a node builds on, and whether it was
// observed after that. Otherwise it is concluded from the list.
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

// Latest returns the number of the latest list, -1 if there is none.
func (s *Stream) Latest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lists) - 1
}

// Question returns what to ask others about a list.
func (s *Stream) Question(list int) Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[list]
	return Question{Number: list, List: l.at, Newest: l.newest, Digest: l.digest}
}

// Relist ends the watch and lets the informer list the Nodes again. A request that is under way
// does not count as later.
func (s *Stream) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forced++
	if s.watch != nil {
		s.watch.Stop()
	}
}
