package barrier

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/revision"
)

// TestDigestOfAListByWatch checks the digest if Nodes change before the bookmark that ends the
// list: the API server sends the Nodes of its cache, and then the changes up to the revision that
// etcd had at the request (KEP-3157).
func TestDigestOfAListByWatch(t *testing.T) {
	node := func(name, uid, at string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: at}}
	}
	a, b := node("a", "u1", "5"), node("b", "u2", "6")
	for name, tc := range map[string]struct {
		changes []watch.Event
		want    Digest
		newest  string
	}{
		"no change": {nil, Digest(0).Add("a", "u1").Add("b", "u2"), "6"},
		"a change":  {[]watch.Event{{Type: watch.Modified, Object: node("a", "u1", "7")}}, Digest(0).Add("a", "u1").Add("b", "u2"), "7"},
		"a delete":  {[]watch.Event{{Type: watch.Deleted, Object: node("b", "u2", "7")}}, Digest(0).Add("a", "u1"), "6"},
		"an add":    {[]watch.Event{{Type: watch.Added, Object: node("c", "u3", "7")}}, Digest(0).Add("a", "u1").Add("b", "u2").Add("c", "u3"), "7"},
		"a delete and an add": {[]watch.Event{
			{Type: watch.Deleted, Object: node("b", "u2", "7")}, {Type: watch.Added, Object: node("b", "u3", "8")},
		}, Digest(0).Add("a", "u1").Add("b", "u3"), "8"},
	} {
		t.Run(name, func(t *testing.T) {
			events := append([]watch.Event{{Type: watch.Added, Object: a}, {Type: watch.Added, Object: b}}, tc.changes...)
			end := node("", "", "9")
			end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			events = append(events, watch.Event{Type: watch.Bookmark, Object: end})
			from := watch.NewFakeWithChanSize(len(events), false)
			for _, e := range events {
				from.Action(e.Type, e.Object)
			}
			s := &Stream{}
			w := s.follow(from, true)
			defer w.Stop()
			for range events {
				<-w.ResultChan()
			}
			assert.Equal(t, Question{Digest: tc.want, List: revision.Of("9"), Newest: revision.Of(tc.newest)}, s.Question(0))
		})
	}
}

func TestStreamFollowsNodesOfEitherKind(t *testing.T) {
	for name, tc := range map[string]struct {
		object runtime.Object
		list   runtime.Object
		want   int // the number of its lists
	}{
		"metadata":    {&metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, 1},
		"whole Nodes": {&corev1.Node{}, &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, 1},
		"ConfigMaps":  {&corev1.ConfigMap{}, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Stream{}
				informer := s.NewInformer(&toolscache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return tc.list, nil },
					WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
						if options.SendInitialEvents != nil {
							return nil, errors.New("this API server is older than lists by watch")
						}
						return watch.NewFake(), nil
					},
				}, tc.object, 0, toolscache.Indexers{})
				ctx, cancel := context.WithCancel(t.Context())
				go informer.RunWithContext(ctx)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, tc.want, s.Latest()+1)
				cancel()
			})
		})
	}
}
