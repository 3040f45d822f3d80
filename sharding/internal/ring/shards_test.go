package ring_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

func seen(name string, created int, state shardlease.State, annotations map[string]string) shardlease.Seen {
	return shardlease.Seen{State: state, Lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: annotations, CreationTimestamp: metav1.NewTime(start.Add(time.Duration(created) * time.Second)),
	}}}
}

func TestStatesOfShards(t *testing.T) {
	t.Parallel()
	leaving := map[string]string{v1alpha1.DefaultPrefix.LeavingAnnotation(): "true"}
	all := []shardlease.Seen{
		seen("a", 0, shardlease.Ready, nil), seen("b", 0, shardlease.Ready, leaving), seen("c", 0, shardlease.Expired, leaving),
		seen("d", 0, shardlease.Uncertain, nil), seen("e", 0, shardlease.Dead, leaving), seen("f", 0, shardlease.Orphaned, nil),
	}
	got, rejected := ring.Shards(ring.Observation{Leases: all, Joined: map[string]time.Time{"a": at(3)}}, v1alpha1.DefaultPrefix, nil)
	assert.Empty(t, rejected)
	var states []ring.State
	for _, s := range got {
		states = append(states, s.State)
	}
	assert.Equal(t, []ring.State{ring.Ready, ring.Leaving, ring.Expired, ring.Uncertain, ring.Dead, ring.Orphaned}, states)
	assert.Equal(t, at(3), got[0].Joined)
}

// TestNameThatIsNoLabelValueDoesNotCount covers a part of R10 and F7: objects of such a shard could
// not be created.
func TestNameThatIsNoLabelValueDoesNotCount(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 64)
	got, rejected := ring.Shards(ring.Observation{Leases: []shardlease.Seen{seen("a", 0, shardlease.Ready, nil), seen(long, 0, shardlease.Ready, nil)}}, v1alpha1.DefaultPrefix, nil)
	require.Len(t, got, 1)
	require.Len(t, rejected, 1)
	assert.Equal(t, ring.InvalidShardName, rejected[0].Reason)
	assert.Contains(t, rejected[0].Message, "63")
}

func TestTooManyShards(t *testing.T) {
	t.Parallel()
	var all []shardlease.Seen
	for i := range v1alpha1.MaxShards + 2 {
		all = append(all, seen(fmt.Sprintf("web-%03d", i), i, shardlease.Ready, nil))
	}
	last := all[len(all)-1].Lease.Name
	got, rejected := ring.Shards(ring.Observation{Leases: all}, v1alpha1.DefaultPrefix, []string{last})
	require.Len(t, got, v1alpha1.MaxShards)
	assert.Equal(t, last, got[len(got)-1].Name, "a shard in the table stays")
	var names []string
	for _, r := range rejected {
		assert.Equal(t, ring.TooManyShards, r.Reason)
		names = append(names, r.Name)
	}
	assert.Equal(t, []string{"web-255", "web-256"}, names, "the youngest")
}

func TestShardWithoutItsLeaseIsUncertain(t *testing.T) {
	t.Parallel()
	got, _ := ring.Shards(ring.Observation{Leases: []shardlease.Seen{seen("b", 0, shardlease.Ready, nil)}, Vanished: []string{"a", "c"}}, v1alpha1.DefaultPrefix, nil)
	require.Len(t, got, 3)
	for i, name := range []string{"a", "b", "c"} {
		assert.Equal(t, name, got[i].Name)
	}
	assert.Equal(t, ring.Uncertain, got[0].State)
	assert.Nil(t, got[0].Lease)
}

// Leases that another client holds are not accepted, and are not removed with the Leases of dead
// shards.
func TestForeignLeaseDoesNotCount(t *testing.T) {
	t.Parallel()
	held := func(name, by string) shardlease.Seen {
		s := seen(name, 0, shardlease.Dead, nil)
		s.Lease.Spec.HolderIdentity = &by
		return s
	}
	all := []shardlease.Seen{held("a", "a_0bd5"), held("b", "sharder"), held("c", ""), held("sharder", "sharder")}
	got, rejected := ring.Shards(ring.Observation{Leases: all}, v1alpha1.DefaultPrefix, nil)
	require.Len(t, got, 2)
	assert.Equal(t, []string{"b", "c"}, []string{got[0].Name, got[1].Name})
	require.Len(t, rejected, 2)
	assert.Equal(t, ring.NameConflict, rejected[0].Reason)
	assert.Contains(t, rejected[0].Message, "a_0bd5")
	assert.Equal(t, ring.InvalidShardName, rejected[1].Reason)
}

// Live shards take precedence over dead ones. A shard in the table keeps its place even if a user
// has edited the table.
func TestDeadShardsTakeNoPlacesOfLiveOnes(t *testing.T) {
	t.Parallel()
	var all []shardlease.Seen
	for i := range v1alpha1.MaxShards {
		all = append(all, seen(fmt.Sprintf("dead-%03d", i), i, shardlease.Dead, nil), seen(fmt.Sprintf("live-%03d", i), 1000+i, shardlease.Ready, nil))
	}
	all = append(all, seen("late", 2000, shardlease.Ready, nil))
	got, _ := ring.Shards(ring.Observation{Leases: all}, v1alpha1.DefaultPrefix, []string{"z", "late", "a"})
	require.Len(t, got, v1alpha1.MaxShards)
	names := map[string]bool{}
	for _, s := range got {
		assert.Equal(t, ring.Ready, s.State, s.Name)
		names[s.Name] = true
	}
	assert.True(t, names["late"])
}
