package assignment

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// pageTimeout bounds each page of a list: a request that hangs must not block the others forever.
const pageTimeout = 30 * time.Second

const (
	// awaitTimeout bounds the wait for a watch. An API server that is that far behind costs a list.
	awaitTimeout = 2 * time.Second
	awaitPeriod  = 2 * time.Millisecond
)

// api is the part of the API server that has the objects of one resource. The simulation has another
// one.
type api interface {
	// get reads the metadata of an object.
	get(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error)
	// patch changes an object on the condition that its UID and some of its labels are as they were
	// read, and returns the new version. It returns errConflict if the condition does not hold.
	patch(ctx context.Context, m *metav1.PartialObjectMetadata, known []string, to change) (*metav1.PartialObjectMetadata, error)
	// list calls each for every object that matches a selector, by a most recent read, and returns the
	// version of the list.
	list(ctx context.Context, selector string, each func(*metav1.PartialObjectMetadata) error) (version string, err error)
	// watchFrom starts to watch the objects that match a selector, from a version on. It calls handle with
	// each object that changes or stops matching, in the order of the changes, and ended when the watch
	// has ended.
	watchFrom(ctx context.Context, selector, version string, handle func(m *metav1.PartialObjectMetadata, exists bool), ended func())
	// await waits for a condition that a watch can change, and reports whether it holds in time.
	await(ctx context.Context, condition func() bool) bool
	// readAll calls each for every object. It may call it for an object again after an error.
	readAll(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error
	// follow starts to watch the objects in some namespaces that match a selector, and keeps the result of
	// strip. The namespace "" stands for all. It calls handle with each object that changes or stops
	// matching, and synced after the first lists.
	follow(ctx context.Context, namespaces []string, selector string, strip func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata, handle func(m *metav1.PartialObjectMetadata, exists bool), synced func()) *following
}

// server is an api by a client.
type server struct {
	client          metadata.Getter
	isClusterScoped bool
}

var _ api = server{}

func (s server) get(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if s.isClusterScoped {
		key.Namespace = ""
	}
	return s.client.Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}) //nolint:wrapcheck // callers check the kind of error
}

func (s server) patch(ctx context.Context, m *metav1.PartialObjectMetadata, known []string, to change) (*metav1.PartialObjectMetadata, error) {
	return write(ctx, s.client.Namespace(m.Namespace), m, known, to)
}

func (s server) list(ctx context.Context, selector string, each func(*metav1.PartialObjectMetadata) error) (version string, err error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		page, err := s.client.List(ctx, o)
		if err == nil && version == "" {
			version = page.ResourceVersion // the other pages are of the same version
		}
		return page, err //nolint:wrapcheck // callers add the context
	})
	err = pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(object runtime.Object) error {
		if m, ok := object.(*metav1.PartialObjectMetadata); ok {
			return each(m)
		}
		return nil
	})
	return version, err //nolint:wrapcheck // callers add the context
}

func (s server) watchFrom(ctx context.Context, selector, version string, handle func(m *metav1.PartialObjectMetadata, exists bool), ended func()) {
	go func() {
		defer ended()
		w, err := s.client.Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: version})
		if err != nil {
			logf.FromContext(ctx).V(1).Info("Watching children failed", "error", err)
			return
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			m, isMetadata := e.Object.(*metav1.PartialObjectMetadata)
			if !isMetadata || e.Type == watch.Error {
				return
			}
			handle(m, e.Type != watch.Deleted)
		}
	}()
}

func (s server) await(ctx context.Context, condition func() bool) bool {
	err := utilwait.PollUntilContextTimeout(ctx, awaitPeriod, awaitTimeout, true, func(context.Context) (bool, error) { return condition(), nil })
	return err == nil
}

func (s server) readAll(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	err := s.stream(ctx, each)
	if errors.Is(err, errStreamEnded) {
		// The API server ends a watch that falls behind, for example because the objects found so
		// far are already moving. A retry would probably fail in the same way, after a longer wait
		// each time.
		logf.FromContext(ctx).V(1).Info("The stream of objects ended early, reading pages")
		return s.page(ctx, each)
	}
	return err
}

// errStreamEnded means that a watch ended before it had sent all objects.
var errStreamEnded = errors.New("the watch ended before the list was complete")

// stream calls each for every object of the resource. The API server streams the objects from its
// cache; if it does not support that, stream reads pages.
func (s server) stream(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	w, err := s.client.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		return s.page(ctx, each)
	}
	defer w.Stop()
	for {
		var e watch.Event
		var isOpen bool
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // the assigner stops
		case e, isOpen = <-w.ResultChan():
		}
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object) //nolint:wrapcheck // readAll adds the context
		}
		m, isMetadata := e.Object.(*metav1.PartialObjectMetadata)
		switch {
		case !isOpen || !isMetadata:
			return errStreamEnded
		case e.Type == watch.Bookmark && m.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return nil
		case e.Type == watch.Added || e.Type == watch.Modified:
			each(m)
		}
	}
}

func (s server) page(ctx context.Context, each func(*metav1.PartialObjectMetadata)) error {
	_, err := s.list(ctx, "", func(m *metav1.PartialObjectMetadata) error {
		each(m)
		return nil
	})
	return err
}

func (s server) follow(ctx context.Context, namespaces []string, selector string, strip func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata, handle func(m *metav1.PartialObjectMetadata, exists bool), synced func()) *following {
	ctx, stop := context.WithCancel(ctx)
	f := &following{stop: stop}
	var all []cache.InformerSynced
	for _, namespace := range namespaces {
		store, informer := s.informer(namespace, selector, strip, handle)
		f.stores, all = append(f.stores, store), append(all, informer.HasSynced)
		go informer.RunWithContext(ctx)
	}
	f.synced = func() bool {
		return !slices.ContainsFunc(all, func(one cache.InformerSynced) bool { return !one() })
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), all...) {
			synced()
		}
	}()
	return f
}

// informer returns an informer of the objects in a namespace that match a selector.
func (s server) informer(namespace, selector string, strip func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata, handle func(m *metav1.PartialObjectMetadata, exists bool)) (cache.Store, cache.Controller) {
	in := s.client.Namespace(namespace)
	return cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return in.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return in.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{},
		Transform: func(object any) (any, error) {
			if m, ok := object.(*metav1.PartialObjectMetadata); ok {
				return strip(m), nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { dispatch(object, true, handle) },
			UpdateFunc: func(_, object any) { dispatch(object, true, handle) },
			DeleteFunc: func(object any) { dispatch(object, false, handle) },
		},
	})
}

// dispatch passes an event of an informer to a handler.
func dispatch(object any, exists bool, handle func(m *metav1.PartialObjectMetadata, exists bool)) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		handle(m, exists)
	}
}
