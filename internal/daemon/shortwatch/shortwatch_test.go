package shortwatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/daemon/shortwatch"
)

func TestEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		events int
		after  time.Duration // when the watch ends
		want   time.Duration // when the held one ends
	}{
		"at once":                   {0, 0, time.Second},
		"soon":                      {0, 900 * time.Millisecond, time.Second},
		"after a second":            {0, 1100 * time.Millisecond, 1100 * time.Millisecond},
		"soon, after an event":      {1, 300 * time.Millisecond, 300 * time.Millisecond},
		"soon, after a few of them": {3, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, delivered := time.Now(), 0
				w := watch.NewFakeWithChanSize(tc.events, false)
				for range tc.events {
					w.Add(&corev1.Node{})
				}
				held := shortwatch.Hold(w, func() { delivered++ })
				time.AfterFunc(tc.after, w.Stop)
				got := 0
				for range held.ResultChan() {
					got++
				}
				assert.Equal(t, tc.want, time.Since(began))
				assert.Equal(t, tc.events, got)
				assert.Equal(t, tc.events, delivered)
				held.Stop()
			})
		})
	}
}

func TestStopWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]bool{"that is open": false, "that has ended": true} {
			began, w := time.Now(), watch.NewFake()
			held := shortwatch.Hold(w, nil)
			if end {
				w.Stop()
			}
			synctest.Wait()
			held.Stop()
			held.Stop()
			_, open := <-held.ResultChan()
			assert.False(t, open, "a watch %s", name)
			assert.Zero(t, time.Since(began), "a watch %s", name)
		}
	})
}

// server is an API server that cuts watches after half a second, without an event.
type server struct{ lists, watches int }

func (s *server) requests(hold bool) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.lists++
			return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				s.lists++
				w.Action(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
				}})
			} else {
				s.watches++
			}
			time.AfterFunc(500*time.Millisecond, w.Stop)
			if !hold {
				return w, nil
			}
			return shortwatch.Hold(w, nil), nil
		},
	}
}

// The reflector must resume for two minutes, whether the list is streamed by the first watch or
// not. Without [shortwatch.Hold] it soon waits for most of a minute.
func TestReflectorResumesCutWatches(t *testing.T) {
	for name, semantics := range map[string]any{"a list": notStreaming{}, "a streamed list": struct{}{}} {
		t.Run(name, func(t *testing.T) {
			run := func(hold bool) *server {
				s := &server{}
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					requests := toolscache.ToListWatcherWithWatchListSemantics(s.requests(hold), semantics)
					toolscache.NewReflector(requests, &corev1.Node{}, toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), 0).RunWithContext(ctx)
				})
				return s
			}
			held := run(true)
			require.Equal(t, 1, held.lists)
			require.GreaterOrEqual(t, held.watches, 115)

			bare := run(false)
			assert.Greater(t, bare.lists, 1, "client-go has changed: is this package still needed?")
			assert.Less(t, bare.watches, 20, "client-go has changed: is this package still needed?")
		})
	}
}

// notStreaming is a client that cannot stream lists.
type notStreaming struct{}

func (notStreaming) IsWatchListSemanticsUnSupported() bool { return true }
