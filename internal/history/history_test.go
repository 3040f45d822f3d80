package history_test

import (
	"context"
	"errors"
	"fmt"
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

	"nodekeeper.dev/internal/history"
)

var errDown = errors.New("the API server is down")

// cluster is an API server of which a test says what it has.
type cluster struct {
	resourceVersion string
	isDown          bool
	lists           []metav1.ListOptions
}

// ListWithContext is a list of nothing.
func (c *cluster) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	c.lists = append(c.lists, options)
	if c.isDown {
		return nil, errDown
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: c.resourceVersion}}, nil
}

// WatchWithContext is a watch that shows nothing.
func (c *cluster) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if c.isDown {
		return nil, errDown
	}
	return watch.NewFake(), nil
}

// through returns what an informer has of the cluster.
func (c *cluster) through(h *history.History) toolscache.ListerWatcherWithContext {
	var lw toolscache.ListerWatcherWithContext
	h.Informers(func(given toolscache.ListerWatcher, _ runtime.Object, _ time.Duration, _ toolscache.Indexers) toolscache.SharedIndexInformer {
		lw = toolscache.ToListerWatcherWithContext(given)
		return nil
	})(&toolscache.ListWatch{ListWithContextFunc: c.ListWithContext, WatchFuncWithContext: c.WatchWithContext}, nil, 0, nil)
	return lw
}

// goOn watches on from a resourceVersion, for a minute.
func goOn(t *testing.T, lw toolscache.ListerWatcherWithContext, from string) error {
	t.Helper()
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: from, TimeoutSeconds: new(int64(60))})
	if err == nil {
		w.Stop()
	}
	return err
}

func TestWatchThatFailsInItsTurnIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := &cluster{resourceVersion: "300"}, history.New()
		lw := c.through(h)
		require.NoError(t, goOn(t, lw, ""))
		time.Sleep(time.Minute)
		c.isDown = true
		require.ErrorIs(t, goOn(t, lw, "300"), errDown)
		c.isDown, c.resourceVersion = false, "299"
		time.Sleep(time.Second)
		require.ErrorIs(t, goOn(t, lw, "300"), history.ErrWentBack)
	})
}

// listFrom lists what is not older than a resourceVersion.
func listFrom(t *testing.T, lw toolscache.ListerWatcherWithContext, from string) error {
	t.Helper()
	_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: from})
	return err
}

func TestWatchThatIsNotInterruptedAsksForNothing(t *testing.T) {
	for name, hasListed := range map[string]bool{"a watch that begins with what there is": false, "a list and a watch": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := &cluster{resourceVersion: "300"}, history.New()
				lw := c.through(h)
				from := ""
				if hasListed {
					require.NoError(t, listFrom(t, lw, "0"))
					from = "300"
				}
				before := len(c.lists)
				require.NoError(t, goOn(t, lw, from))
				assert.False(t, h.InDoubt())
				for range 100 {
					time.Sleep(time.Minute)
					require.NoError(t, goOn(t, lw, "300"))
					assert.False(t, h.InDoubt())
				}
				assert.Len(t, c.lists, before)
			})
		})
	}
}

func TestInterruptedWatchIsComparedBeforeItGoesOn(t *testing.T) {
	type goesOn func(*testing.T, toolscache.ListerWatcherWithContext, string) error
	for name, tc := range map[string]struct {
		after time.Duration // between the begin of the watch, which is to last a minute, and the next
		then  goesOn        // from resourceVersion 300
		now   string
		want  error
	}{
		"ended early, goes on":   {time.Second, goOn, "300", nil},
		"ended early, went back": {time.Second, goOn, "299", history.ErrWentBack},
		"by length":              {time.Second, goOn, "1000", nil},
		"was not asked for long": {time.Hour, goOn, "299", history.ErrWentBack},
		"lists anew, goes on":    {time.Second, listFrom, "301", nil},
		"lists anew, went back":  {time.Second, listFrom, "299", history.ErrWentBack},
		"not of etcd":            {time.Second, goOn, "x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, h := &cluster{resourceVersion: tc.now}, history.New()
				lw := c.through(h)
				require.NoError(t, goOn(t, lw, ""))
				time.Sleep(tc.after)
				require.ErrorIs(t, tc.then(t, lw, "300"), tc.want)
				assert.Equal(t, metav1.ListOptions{Limit: 1}, c.lists[0], "one object, and the resourceVersion that etcd has now")
				assert.True(t, h.InDoubt())
				assert.Equal(t, tc.want != nil, h.WentBack())
			})
		})
	}
}

func TestDoubtLastsFromTheInterruptionToAMinuteAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := &cluster{resourceVersion: "300"}, history.New()
		lw, other := c.through(h), c.through(h)
		require.NoError(t, goOn(t, lw, ""))
		require.NoError(t, goOn(t, other, ""))
		time.Sleep(time.Second)
		assert.False(t, h.InDoubt())

		c.isDown = true
		require.ErrorIs(t, goOn(t, lw, "300"), errDown)
		require.ErrorIs(t, goOn(t, other, "300"), errDown)
		time.Sleep(time.Hour)
		assert.True(t, h.InDoubt())
		c.isDown = false
		require.NoError(t, goOn(t, lw, "300"))
		time.Sleep(time.Hour)
		assert.True(t, h.InDoubt(), "the other is interrupted still")
		require.NoError(t, goOn(t, other, "300"))
		time.Sleep(time.Minute - time.Nanosecond)
		assert.True(t, h.InDoubt())
		time.Sleep(time.Nanosecond)
		assert.False(t, h.InDoubt())
		assert.False(t, h.WentBack())
	})
}

func TestRunReturnsWhenTheHistoryWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := history.New()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, h.Run(ctx))

		require.NoError(t, h.Compare("9", "9"))
		require.NoError(t, h.Compare("9", "10"))
		for _, after := range []string{"9", "8"} { // by every informer
			require.ErrorIs(t, h.Compare("10", after), history.ErrWentBack)
		}
		err := h.Run(t.Context())
		require.ErrorIs(t, err, history.ErrWentBack)
		assert.ErrorContains(t, err, "from resourceVersion 10 to 9")
	})
}

func TestNilHistoryGoesOn(t *testing.T) {
	var h *history.History
	assert.False(t, h.InDoubt())
	assert.False(t, h.WentBack())
	require.NoError(t, h.Compare("10", "9"))
}

func ExampleHistory_Compare() {
	fmt.Println(history.New().Compare("4400", "3000"))
	// Output: the history of the cluster went back, as after a restore of etcd from a backup (start this program again): from resourceVersion 4400 to 3000
}
