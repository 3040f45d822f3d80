package assignment

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// countingAPI counts requests.
type countingAPI struct {
	api

	gets, lists, watches, patches int
}

func (a *countingAPI) get(ctx context.Context, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	a.gets++
	return a.api.get(ctx, key)
}

func (a *countingAPI) list(ctx context.Context, selector string, each func(*metav1.PartialObjectMetadata) error) (string, error) {
	a.lists++
	return a.api.list(ctx, selector, each)
}

func (a *countingAPI) watchFrom(ctx context.Context, selector, version string, handle func(*metav1.PartialObjectMetadata, bool), ended func()) {
	a.watches++
	a.api.watchFrom(ctx, selector, version, handle, ended)
}

func (a *countingAPI) patch(ctx context.Context, m *metav1.PartialObjectMetadata, known []string, to change) (*metav1.PartialObjectMetadata, error) {
	a.patches++
	return a.api.patch(ctx, m, known, to)
}

// The watch of a view shows nothing in this test, so only lists show what has changed.
func TestBatchWithoutChildrenKeepsTheWatch(t *testing.T) {
	t.Parallel()
	s := newHandoverToChild()
	p := s.sharders[0]
	requests := &countingAPI{api: p.trackers[1].api}
	p.trackers[1].api = requests
	c := p.assigner.children
	move := func(to string) {
		c.move(t.Context(), batch{s.main().UID: {move: move{of: p.trackers[0], main: s.main(), to: to}, versions: map[string]string{}}})
	}
	move("web-1")
	move("web-1")
	assert.Equal(t, &countingAPI{api: requests.api, lists: 2, watches: 1}, requests)

	s.world.create(id{true, "m0-1"}, "web-0", s.main())
	move("web-1")
	assert.Equal(t, &countingAPI{api: requests.api, lists: 3, watches: 1, patches: 1}, requests)
	assert.Equal(t, at("web-1"), s.world.get(id{true, "m0-1"}).Labels)

	s.world.store(id{true, "m0-1"}, nil)
	move("web-1")
	v := c.views[p.trackers[1]]
	require.NotNil(t, v)
	assert.Len(t, v.objects, 1, "the other one is gone")
	assert.Equal(t, 1, requests.watches)
}

// Batches of one resource do not keep the views of others.
func TestViewsThatAreNotUsedAreClosed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var closed []string
	view := func(name string, used time.Time) *childView {
		return &childView{used: used, stop: func() { closed = append(closed, name) }}
	}
	ended := view("ended", now)
	ended.end()
	c := &children{views: map[*tracker]*childView{
		{}: ended, {}: view("used", now.Add(-keepViews+1)), {}: view("not used", now.Add(-keepViews)),
	}}
	c.closeViews(now.Add(-keepViews))
	assert.Len(t, c.views, 1)
	assert.ElementsMatch(t, []string{"ended", "not used"}, closed)
}
