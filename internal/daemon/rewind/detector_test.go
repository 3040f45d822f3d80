package rewind_test

import (
	"cmp"
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

	"nodekeeper.dev/internal/daemon/rewind"
)

var errDown = errors.New("the API server is down")

// cluster is an API server with a state set by a test.
type cluster struct {
	resourceVersion string
	isDown          bool
	event           chan watch.Event // of the watches that are opened
	opens           time.Duration    // how long it takes to open a watch
	reopened        string           // the resourceVersion once a watch is open; "": as before
	lists           []metav1.ListOptions
}

// ListWithContext returns an empty list.
func (c *cluster) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	c.lists = append(c.lists, options)
	if c.isDown {
		return nil, errDown
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: c.resourceVersion}}, nil
}

// WatchWithContext returns a watch that delivers only event.
func (c *cluster) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if c.isDown {
		return nil, errDown
	}
	time.Sleep(c.opens)
	c.resourceVersion = cmp.Or(c.reopened, c.resourceVersion)
	if c.event != nil {
		return watch.NewProxyWatcher(c.event), nil
	}
	return watch.NewFake(), nil
}

// through returns the requests of an informer of the cluster.
func (c *cluster) through(d *rewind.Detector) toolscache.ListerWatcherWithContext {
	return c.throughFor(d, nil)
}

// throughFor is through for an informer of objects of a type.
func (c *cluster) throughFor(d *rewind.Detector, obj runtime.Object) toolscache.ListerWatcherWithContext {
	var lw toolscache.ListerWatcherWithContext
	d.Informers(func(given toolscache.ListerWatcher, _ runtime.Object, _ time.Duration, _ toolscache.Indexers) toolscache.SharedIndexInformer {
		lw = toolscache.ToListerWatcherWithContext(given)
		return nil
	})(&toolscache.ListWatch{ListWithContextFunc: c.ListWithContext, WatchFuncWithContext: c.WatchWithContext}, obj, 0, nil)
	return lw
}

// resumeFrom resumes a watch from a resourceVersion, for a minute.
func resumeFrom(t *testing.T, lw toolscache.ListerWatcherWithContext, from string) error {
	t.Helper()
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: from, TimeoutSeconds: new(int64(60))})
	if err == nil {
		w.Stop()
	}
	return err
}

func TestFailedResumeIsInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		time.Sleep(time.Minute)
		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		c.isDown, c.resourceVersion = false, "299"
		time.Sleep(time.Second)
		require.ErrorIs(t, resumeFrom(t, lw, "300"), rewind.ErrRewound)
	})
}

// TestRefusedFirstWatchIsNotInterruption: Kubernetes 1.30 refuses watches that begin with the
// existing objects, and the reflector then lists them.
func TestRefusedFirstWatchIsNotInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, ""), errDown)
		c.isDown = false
		require.NoError(t, listFrom(t, lw, ""))
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.False(t, d.Unconfirmed(time.Now()))
		assert.Zero(t, d.LastResumed())

		c.isDown = true
		time.Sleep(time.Minute)
		require.ErrorIs(t, resumeFrom(t, lw, ""), errDown)
		assert.True(t, d.Unconfirmed(time.Now()), "this watch was open before")
	})
}

func TestRefusedWatchAfterAListIsInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		require.NoError(t, listFrom(t, lw, ""))
		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		assert.True(t, d.Unconfirmed(time.Now()))
	})
}

// listFrom lists objects that are not older than a resourceVersion.
func listFrom(t *testing.T, lw toolscache.ListerWatcherWithContext, from string) error {
	t.Helper()
	_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: from})
	return err
}

func TestUninterruptedWatchSendsNoRequests(t *testing.T) {
	for name, hasListed := range map[string]bool{"a watch that begins with what there is": false, "a list and a watch": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := &cluster{resourceVersion: "300"}, rewind.New()
				lw := c.through(d)
				from := ""
				if hasListed {
					require.NoError(t, listFrom(t, lw, "0"))
					from = "300"
				}
				before := len(c.lists)
				require.NoError(t, resumeFrom(t, lw, from))
				assert.False(t, d.Unconfirmed(time.Now()))
				for range 100 {
					time.Sleep(time.Minute)
					require.NoError(t, resumeFrom(t, lw, "300"))
					assert.False(t, d.Unconfirmed(time.Now()))
				}
				assert.Len(t, c.lists, before)
			})
		})
	}
}

func TestResumeSoonAfterDeliveryIsNotInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		for range 100 { // as an API server ends the watches of a client that falls behind
			time.Sleep(time.Second / 2)
			require.NoError(t, resumeFrom(t, lw, "300"))
			assert.False(t, d.Unconfirmed(time.Now()))
			assert.False(t, d.Unconfirmed(time.Now().Add(-time.Second/2)))
		}
		assert.Empty(t, c.lists)

		time.Sleep(time.Second / 2)
		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		assert.True(t, d.Unconfirmed(time.Now()))
		c.isDown, c.resourceVersion = false, "299"
		time.Sleep(time.Second)
		require.ErrorIs(t, resumeFrom(t, lw, "300"), rewind.ErrRewound, "it did not resume at the first attempt")
	})
}

func TestLastResumedCountsWatchesThatEndedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		time.Sleep(time.Minute)
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.Zero(t, d.LastResumed(), "it ended in its time")
		for _, after := range []time.Duration{time.Second, 10 * time.Second} { // without an interruption, and with one
			time.Sleep(after)
			require.NoError(t, resumeFrom(t, lw, "300"))
			assert.Equal(t, time.Now(), d.LastResumed())
		}
		time.Sleep(10 * time.Second)
		c.isDown = true
		last := d.LastResumed()
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		assert.Equal(t, last, d.LastResumed(), "it does not go on")
		time.Sleep(10 * time.Second)
		c.isDown = false
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.Equal(t, time.Now(), d.LastResumed())
	})
}

// Each watch may be cut off separately, for example by a revoked permission.
func TestBehindIgnoresOtherWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, secrets := &corev1.ConfigMap{}, &corev1.Secret{}
		here, there, d := &cluster{resourceVersion: "300"}, &cluster{resourceVersion: "300"}, rewind.New()
		ofRecords, ofSecrets := here.throughFor(d, records), there.throughFor(d, secrets)
		require.NoError(t, resumeFrom(t, ofRecords, ""))
		require.NoError(t, resumeFrom(t, ofSecrets, ""))
		assert.Zero(t, d.Behind(records))
		here.isDown = true
		for minute := 1; minute <= 3; minute++ {
			time.Sleep(time.Minute)
			require.ErrorIs(t, resumeFrom(t, ofRecords, "300"), errDown)
			require.NoError(t, resumeFrom(t, ofSecrets, "300"))
			assert.Equal(t, time.Duration(minute)*time.Minute, d.Behind(records))
			assert.Zero(t, d.Behind(secrets))
		}
		here.isDown, there.isDown = false, true
		require.NoError(t, resumeFrom(t, ofRecords, "300"))
		time.Sleep(time.Minute)
		require.NoError(t, resumeFrom(t, ofRecords, "300"))
		require.ErrorIs(t, resumeFrom(t, ofSecrets, "300"), errDown)
		assert.Zero(t, d.Behind(records), "its own watch is open, and has gone on")
		assert.Equal(t, time.Minute, d.Behind(secrets))
		require.NoError(t, resumeFrom(t, ofRecords, "300"))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 2*time.Minute, d.Behind(records), "it is open, and delivers not even a bookmark")
	})
}

// Cut six seconds early, the watch takes two seconds to open.
func TestWatchCutEarlyThatOpensLateHasResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw, other := c.through(d), c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		time.Sleep(54 * time.Second)
		require.NoError(t, resumeFrom(t, other, "")) // delivers
		c.opens = 2 * time.Second
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.Equal(t, time.Now(), d.LastResumed())
	})
}

// The restored etcd is newer than the first watch's last event, but not than the other one's.
func TestResumedWatchDoesNotConfirmOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "500"}, rewind.New()
		lw, other := c.through(d), c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		require.NoError(t, resumeFrom(t, other, ""))
		time.Sleep(30 * time.Second)
		c.resourceVersion = "400"
		require.NoError(t, resumeFrom(t, lw, "300"))
		time.Sleep(time.Second)
		require.ErrorIs(t, resumeFrom(t, other, "500"), rewind.ErrRewound)
	})
}

// An API server that has lost its etcd may respond when etcd is back, as it was before.
func TestLateOpenIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw := c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		time.Sleep(time.Second)
		c.opens, c.resourceVersion = 30*time.Second, "299"
		require.Error(t, resumeFrom(t, lw, "300"))
		assert.True(t, d.Unconfirmed(time.Now()))
		c.opens = 0
		require.ErrorIs(t, resumeFrom(t, lw, "300"), rewind.ErrRewound)
	})
}

// etcd may also be restored between the comparison and the opening of the watch.
func TestLateOpenAfterComparisonIsComparedAgain(t *testing.T) {
	for reopened, want := range map[string]error{"299": rewind.ErrRewound, "300": nil} {
		synctest.Test(t, func(t *testing.T) {
			c, d := &cluster{resourceVersion: "300"}, rewind.New()
			lw := c.through(d)
			require.NoError(t, resumeFrom(t, lw, ""))
			time.Sleep(10 * time.Second)
			c.opens, c.reopened = 30*time.Second, reopened
			require.ErrorIs(t, resumeFrom(t, lw, "300"), want)
			assert.Equal(t, want != nil, d.Rewound())
		})
	}
}

func TestInterruptedWatchIsComparedBeforeItResumes(t *testing.T) {
	const moment = 3 * time.Second
	type goesOn func(*testing.T, toolscache.ListerWatcherWithContext, string) error
	for name, tc := range map[string]struct {
		after time.Duration // between the begin of the watch, which must last a minute, and the next
		then  goesOn        // from resourceVersion 300
		now   string
		want  error
	}{
		"ended early, goes on":     {moment, resumeFrom, "300", nil},
		"ended early, was rewound": {moment, resumeFrom, "299", rewind.ErrRewound},
		"by length":                {moment, resumeFrom, "1000", nil},
		"was not resumed for long": {time.Hour, resumeFrom, "299", rewind.ErrRewound},
		"relists, goes on":         {moment, listFrom, "301", nil},
		"relists, was rewound":     {moment, listFrom, "299", rewind.ErrRewound},
		"not of etcd":              {moment, resumeFrom, "x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := &cluster{resourceVersion: tc.now}, rewind.New()
				lw := c.through(d)
				require.NoError(t, resumeFrom(t, lw, ""))
				time.Sleep(tc.after)
				require.ErrorIs(t, tc.then(t, lw, "300"), tc.want)
				assert.Equal(t, metav1.ListOptions{Limit: 1}, c.lists[0], "one object, and the resourceVersion that etcd has now")
				assert.True(t, d.Unconfirmed(time.Now().Add(-1)))
				assert.Equal(t, tc.want != nil, d.Rewound())
			})
		})
	}
}

func TestUnconfirmedDuringAndAfterInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := &cluster{resourceVersion: "300"}, rewind.New()
		lw, other := c.through(d), c.through(d)
		require.NoError(t, resumeFrom(t, lw, ""))
		require.NoError(t, resumeFrom(t, other, ""))
		time.Sleep(3 * time.Second)
		start := time.Now()
		assert.False(t, d.Unconfirmed(start))

		c.isDown = true
		require.ErrorIs(t, resumeFrom(t, lw, "300"), errDown)
		require.ErrorIs(t, resumeFrom(t, other, "300"), errDown)
		time.Sleep(time.Hour)
		assert.True(t, d.Unconfirmed(time.Now()))
		c.isDown = false
		require.NoError(t, resumeFrom(t, lw, "300"))
		time.Sleep(time.Hour)
		assert.True(t, d.Unconfirmed(time.Now()), "the other is interrupted still")
		last := time.Now()
		time.Sleep(time.Nanosecond)
		require.NoError(t, resumeFrom(t, other, "300"))
		assert.False(t, d.Unconfirmed(time.Now()), "at once")
		time.Sleep(time.Hour)
		assert.True(t, d.Unconfirmed(start))
		assert.True(t, d.Unconfirmed(last))
		assert.False(t, d.Rewound())

		between := time.Now()
		assert.False(t, d.Unconfirmed(between))
		time.Sleep(time.Hour)
		require.NoError(t, resumeFrom(t, lw, "300"))
		assert.True(t, d.Unconfirmed(between), "it was cut again")
		assert.False(t, d.Unconfirmed(time.Now()))
	})
}

func TestRunReturnsWhenTheClusterWasRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := rewind.New()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, d.Run(ctx))

		require.NoError(t, d.Compare("9", "9"))
		require.NoError(t, d.Compare("9", "10"))
		for _, after := range []string{"9", "8"} { // by every informer
			require.ErrorIs(t, d.Compare("10", after), rewind.ErrRewound)
		}
		err := d.Run(t.Context())
		require.ErrorIs(t, err, rewind.ErrRewound)
		assert.ErrorContains(t, err, "from resourceVersion 10 to 9")
	})
}

func TestNilDetectorReportsNothing(t *testing.T) {
	var d *rewind.Detector
	assert.False(t, d.Unconfirmed(time.Now()))
	assert.False(t, d.Rewound())
	assert.Zero(t, d.LastResumed())
	require.NoError(t, d.Compare("10", "9"))
}

func ExampleDetector_Compare() {
	err := rewind.New().Compare("4400", "3000")
	fmt.Println(errors.Is(err, rewind.ErrRewound))
	// Output: true
}
