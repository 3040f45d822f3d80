package library

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// leavers is the load of TestLeaveListsChildrenPerBatch: go test ./sharding/test/library -run
// TestLeaveListsChildrenPerBatch -v -args -shard.leavers=1000
var leavers = flag.Int("shard.leavers", 300, "number of Secrets of the shard that leaves in TestLeaveListsChildrenPerBatch")

// TestLeaveListsChildrenPerBatch covers R31 and step 3 of the protocol by the audit log: when a
// shard leaves, one list finds the children of all objects that wait at that time. Such lists begin
// half a second apart, or when half of the objects that may be in hand-over wait.
func TestLeaveListsChildrenPerBatch(t *testing.T) {
	t.Parallel()
	n, maxMoves := *leavers, 100
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Handover.MaxConcurrentMoves = int32(maxMoves)
		r.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // the second shard gets no objects before the first one leaves
	})
	c.createAll(n)
	leaver := c.example("web-0", "")
	c.eventually(func(t *assert.CollectT) { c.hasChecksums(t, n) }, "the first shard has all")
	c.example("web-1", "")
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 2, c.status(t).AvailableShards) }, "both are ready")
	before, began := c.lists(), time.Now()
	require.NoError(t, leaver.Stop(patience))
	c.eventually(func(t *assert.CollectT) {
		assert.Equal(t, map[string]int{"web-1": n}, c.owners(t))
		c.hasChecksums(t, n)
	}, "the other shard has all")
	lists, took := c.lists()-before, time.Since(began)
	t.Logf("%d lists of children for %d objects, which took %s", lists, n, took)
	assert.Positive(t, lists)
	assert.LessOrEqual(t, lists, n/(maxMoves/2)+int(took/(500*time.Millisecond))+1)
}

// lists returns how often the sharder has listed the ConfigMaps of the ring.
func (c *cluster) lists() int {
	c.t.Helper()
	return len(audited(c.t, c.ring.Name, func(w write) bool {
		return w.Verb == "list" && strings.HasPrefix(w.UserAgent, "nodekeeper-sharder/") && strings.Contains(w.RequestURI, c.ring.Name)
	}))
}
