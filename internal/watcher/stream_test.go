package watcher_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/watcher"
)

// requests is an API server that logs its requests. A relist is forced during one of them.
type requests struct {
	stream  *watcher.Stream
	streams bool   // whether it supports lists by watch
	during  string // the request
	log     []string
	counts  map[string]int
	watches []*watch.FakeWatcher
}

func (r *requests) begin(kind string) {
	r.counts[kind]++
	request := fmt.Sprint(kind, " ", r.counts[kind])
	r.log = append(r.log, request)
	if request == r.during {
		r.stream.Relist()
	}
}

func (r *requests) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	r.begin("list")
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}, nil
}

func (r *requests) watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	switch {
	case options.SendInitialEvents == nil:
		r.begin("watch")
	case r.streams:
		r.begin("stream")
		end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100"}}
		metav1.SetMetaDataAnnotation(&end.ObjectMeta, metav1.InitialEventsAnnotationKey, "true")
		w.Action(watch.Bookmark, end)
	default:
		return nil, errors.New("this API server is older than lists by watch")
	}
	r.watches = append(r.watches, w)
	return w, nil
}

// open returns how many watches were not stopped.
func (r *requests) open() (count int) {
	for _, w := range r.watches {
		if !w.IsStopped() {
			count++
		}
	}
	return count
}

// Another relist is forced after a minute.
func TestRelistDuringRequestIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		during  string
		streams bool
		want    []string
	}{
		"control":            {"", false, []string{"list 1", "watch 1", "list 2", "watch 2"}},
		"the first list":     {"list 1", false, []string{"list 1", "list 2", "watch 1", "list 3", "watch 2"}},
		"a later list":       {"list 2", false, []string{"list 1", "watch 1", "list 2", "list 3", "watch 2"}},
		"a watch":            {"watch 1", false, []string{"list 1", "watch 1", "list 2", "watch 2", "list 3", "watch 3"}},
		"control, by watch":  {"", true, []string{"stream 1", "stream 2"}},
		"a list by watch":    {"stream 1", true, []string{"stream 1", "stream 2", "stream 3"}},
		"a later one of its": {"stream 2", true, []string{"stream 1", "stream 2", "stream 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &requests{stream: &watcher.Stream{}, streams: tc.streams, during: tc.during, counts: map[string]int{}}
				lw := &toolscache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.watch}
				nodes := r.stream.NewInformer(lw, &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
				ctx, cancel := context.WithCancel(t.Context())
				go nodes.RunWithContext(ctx)
				time.Sleep(time.Minute)
				r.stream.Relist()
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, tc.want, r.log)
				assert.Equal(t, 1, r.open(), "watches")
				cancel()
				synctest.Wait()
			})
		})
	}
}
