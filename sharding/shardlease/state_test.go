package shardlease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/shardlease"
)

func TestStateOfALease(t *testing.T) {
	const d = 15 * time.Second
	held := func(by string, seconds int32) coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{HolderIdentity: &by, LeaseDurationSeconds: &seconds}
	}
	for name, tc := range map[string]struct {
		spec      coordinationv1.LeaseSpec
		unchanged time.Duration
		want      shardlease.State
		member    bool
	}{
		"just renewed":                    {held("me", 15), 0, shardlease.Ready, true},
		"about to expire":                 {held("me", 15), d - 1, shardlease.Ready, true},
		"expired":                         {held("me", 15), d, shardlease.Expired, true},
		"expired for almost its duration": {held("me", 15), 2*d - 1, shardlease.Expired, true},
		"expired for its duration":        {held("me", 15), 2 * d, shardlease.Uncertain, true},
		"expired for an hour":             {held("me", 15), time.Hour, shardlease.Uncertain, true},
		"of a longer duration":            {held("me", 60), 2 * d, shardlease.Ready, true},
		"without a duration":              {coordinationv1.LeaseSpec{HolderIdentity: new("me")}, 0, shardlease.Uncertain, true},
		"released":                        {held("", 1), 0, shardlease.Dead, false},
		"without a holder":                {coordinationv1.LeaseSpec{}, 0, shardlease.Dead, false},
		"taken over":                      {held("another", 30), 0, shardlease.Dead, false},
		"taken over, almost a minute ago": {held("another", 30), time.Minute - 1, shardlease.Dead, false},
		"taken over a minute ago":         {held("another", 30), time.Minute, shardlease.Orphaned, false},
		"released a minute ago":           {held("", 1), time.Minute, shardlease.Orphaned, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "me"}, Spec: tc.spec}
			state := shardlease.StateOf(l, tc.unchanged, time.Minute)
			assert.Equal(t, tc.want, state, "%s, not %s", tc.want, state)
			assert.Equal(t, tc.member, state.Member())
		})
	}
}

// The times in a Lease are not used.
func TestClockOfTheOtherMachineDoesNotMatter(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		renewed := metav1.NewMicroTime(time.Now().Add(skew))
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "me"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("me"), LeaseDurationSeconds: new(int32(15)), RenewTime: &renewed, AcquireTime: &renewed,
		}}
		assert.Equal(t, shardlease.Ready, shardlease.StateOf(l, 14*time.Second, time.Minute))
		assert.Equal(t, shardlease.Uncertain, shardlease.StateOf(l, 30*time.Second, time.Minute))
	}
}
