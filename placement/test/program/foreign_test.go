package program

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
)

// TestLeaseThatIsTakenAway: the agent stops its work, and joins with a new run once the Lease is
// free.
func TestLeaseThatIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, taker := range map[string]string{"released by hand": "", "taken over": "another/1-5s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, pods, _ := newWork(t, short, 2, 1)
			a := pods[0]
			holder := c.holder(t, a)
			patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q}}`, taker)
			require.NoError(t, c.Patch(t.Context(), c.lease(t, a), client.RawPatch(types.MergePatchType, patch)))
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				assert.NotContains(t, []string{"", taker, holder}, c.holder(t, a))
				assert.Len(t, pids(c.journal(t), a), 4)
			}, patience, period)
			c.await(2, a)
		})
	}
}

// TestContractThatIsNotForTheAgent is not followed, and the controller replaces it.
func TestContractThatIsNotForTheAgent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*contract.Contract){
		"of another incarnation": func(c *contract.Contract) { c.Incarnation, c.Generation = "another/1-15s", c.Generation+1 },
		"of a lower generation":  func(c *contract.Contract) { c.Generation = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, pods, _ := newWork(t, long, 2, 1)
			a := pods[0]
			holder, events := c.holder(t, a), len(c.journal(t))
			cm := c.contract(t, a)
			given, err := contract.DecodeContract([]byte(cm.Data[contract.DataKey]))
			require.NoError(t, err)
			given.Entries = nil
			change(&given)
			cm.Data[contract.DataKey] = string(given.Encode())
			require.NoError(t, c.Update(t.Context(), cm))
			require.EventuallyWithT(t, func(t *assert.CollectT) {
				now, err := contract.DecodeContract([]byte(c.contract(t, a).Data[contract.DataKey]))
				require.NoError(t, err)
				assert.Equal(t, holder, now.Incarnation)
				require.Len(t, now.Entries, 1)
				assert.Len(t, now.Entries[0].Replicas, 2)
			}, patience, period)
			c.await(2, a)
			assert.Len(t, c.journal(t), events, "the work goes on")
			assert.Equal(t, holder, c.holder(t, a))
		})
	}
}
