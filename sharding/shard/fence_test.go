package shard

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counter is an unreachable API server that counts requests.
type counter struct{ sent atomic.Int32 }

func (c *counter) RoundTrip(*http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return nil, errors.New("connection refused")
}

// TestShardWithoutRightDoesNotRenew covers R6 and R33: a frozen process may resume when its Lease
// is due, before it notices that its right has ended. It must neither renew nor recreate the Lease.
func TestShardWithoutRightDoesNotRenew(t *testing.T) {
	t.Parallel()
	server := &counter{}
	cfg := &rest.Config{Host: "http://localhost", Transport: server}
	s, err := New(cfg, Options{Ring: "website", Kinds: []client.Object{&corev1.Secret{}}, Name: "web-0", Namespace: "web-system", LeaseDuration: time.Second})
	require.NoError(t, err)
	s.right.renewed(sinceStart() - time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	s.keeper.Run(ctx)
	assert.Zero(t, server.sent.Load())
}
