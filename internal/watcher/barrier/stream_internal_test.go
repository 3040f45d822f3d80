package barrier

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

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
