package program

import (
	"context"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/programs"
)

// candidate is a sharder with leader election. If it ends by itself, it is started again, as
// Kubernetes does: on a busy machine it may fail to renew its Lease in time. It is safe for
// concurrent use.
type candidate struct{ *programs.Kept }

// candidate starts a candidate with more flags perhaps, which ends with the test, and waits until it
// is ready.
func (c *cluster) candidate(identity string, args ...string) candidate {
	c.t.Helper()
	kubeconfig := c.kubeconfig
	webhook, err := crds.WebhookFlags()
	require.NoError(c.t, err)
	flags := slices.Concat(webhook, args)
	kept, err := programs.Keep(func() (*programs.Program, error) { return programs.Start("sharder", identity, kubeconfig, flags...) })
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, kept.Stop(stopTimeout))
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", identity, kept.Output())
		}
	})
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, kept.WaitReady(ctx))
	return candidate{kept}
}

// ended returns the processes that have ended by themselves.
func (s candidate) ended() []*programs.Program {
	return slices.DeleteFunc(s.Processes(), func(p *programs.Program) bool {
		select {
		case <-p.Done():
			return false
		default:
			return true
		}
	})
}
