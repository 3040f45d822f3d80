package command

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease plays the Lease of the leader.
type lease struct {
	resourcelock.Interface

	holder string
	err    error  // of every request
	before func() // called before a write
	writes int
}

func (l *lease) Identity() string { return "me" }

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, l.err
}

func (l *lease) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(context.Background(), r)
}

func (l *lease) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.writes++
	if l.before != nil {
		l.before()
	}
	if l.err == nil {
		l.holder = r.HolderIdentity
	}
	return l.err
}

// elected returns a lock that holds a Lease.
func elected(t *testing.T) (l *lock, stored *lease, stopped *bool) {
	t.Helper()
	stored, stopped = &lease{}, new(bool)
	l = &lock{Interface: stored, term: &term{}, stop: func() { *stopped = true }}
	assert.True(t, l.term.isOver(), "it has not begun")
	require.NoError(t, l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	assert.False(t, l.term.isOver())
	get(t, l)
	assert.False(t, *stopped)
	return l, stored, stopped
}

func get(t *testing.T, l *lock) {
	t.Helper()
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
}

var errLost = errors.New("the answer is lost")

func TestRenewalMakesTheTermLonger(t *testing.T) {
	t.Parallel()
	l, stored, _ := elected(t)
	l.term.end.Store(1)
	stored.err = errLost
	require.ErrorIs(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}), errLost)
	assert.True(t, l.term.isOver(), "it may not be renewed")
	stored.err = nil
	require.NoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	assert.False(t, l.term.isOver())
}

func TestReleaseEndsTheTermFirst(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errLost} {
		l, stored, _ := elected(t)
		stored.err, stored.before = err, func() { assert.True(t, l.term.isOver()) }
		require.ErrorIs(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}), err)
		assert.Equal(t, 2, stored.writes)
		assert.True(t, l.term.isOver())
	}
}

// TestNextLeaderKeepsTheLease: the elector releases a Lease that it last knew as its own.
func TestNextLeaderKeepsTheLease(t *testing.T) {
	t.Parallel()
	for _, holder := range []string{"next", ""} {
		l, stored, stopped := elected(t)
		stored.holder = holder
		get(t, l)
		assert.True(t, *stopped)
		require.ErrorIs(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errDeposed)
		assert.Equal(t, holder, stored.holder)
		assert.True(t, l.term.isOver())
	}
}

func TestElectionGoesOnUntilTheFirstTerm(t *testing.T) {
	t.Parallel()
	stopped := false
	get(t, &lock{Interface: &lease{holder: "other"}, term: &term{}, stop: func() { stopped = true }})
	assert.False(t, stopped)
}

// transport counts requests.
type transport int

func (c *transport) RoundTrip(*http.Request) (*http.Response, error) {
	*c++
	return &http.Response{}, nil
}

// body notes that it was closed, as a transport must do it.
type body struct {
	io.Reader

	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestNothingIsSentAfterTheTerm(t *testing.T) {
	t.Parallel()
	l, _, _ := elected(t)
	var sent transport
	content := &body{Reader: strings.NewReader("{}")}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost", content)
	require.NoError(t, err)
	fenced := l.term.fence(&sent)
	_, err = fenced.RoundTrip(request) //nolint:bodyclose // it has none
	require.NoError(t, err)
	assert.Equal(t, transport(1), sent)
	l.term.end.Store(1)
	_, err = fenced.RoundTrip(request) //nolint:bodyclose // as above
	require.ErrorIs(t, err, errDeposed)
	assert.Equal(t, transport(1), sent)
	assert.True(t, content.closed)
}
