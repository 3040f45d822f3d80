package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement/contract"
)

// TestContractWithoutALeaseIsRemoved some time after the Lease is gone, however old the contract is,
// and not while there is a Lease that is held.
func TestContractWithoutALeaseIsRemoved(t *testing.T) {
	t.Parallel()
	for name, isDeleted := range map[string]bool{"deleted": true, "without the label": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseWorld(t, "u/1-15s", 15)
				w.KeepEnded = 10 * time.Minute
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w-0", UID: "c", ResourceVersion: "6", Labels: map[string]string{contract.PoolLabel: "p"}}}
				require.NoError(t, w.fake.Tracker().Add(cm))
				require.NoError(t, w.contracts.Add(cm))
				isThere := func(after time.Duration) bool {
					time.Sleep(after)
					p := &pass{loop: w.loop, now: time.Now()}
					p.see()
					p.removeEnded(t.Context())
					_, err := w.fake.CoreV1().ConfigMaps("n").Get(t.Context(), "w-0", metav1.GetOptions{})
					return err == nil
				}
				require.True(t, isThere(0))
				require.True(t, isThere(20*time.Minute))
				lease := w.leaseRows.all()["w-0"].parsed.lease
				if isDeleted {
					require.NoError(t, w.fake.CoordinationV1().Leases("n").Delete(t.Context(), "w-0", metav1.DeleteOptions{}))
				}
				require.NoError(t, w.leaseRows.Delete(lease))
				assert.True(t, isThere(0))
				assert.True(t, isThere(9*time.Minute))
				assert.Equal(t, !isDeleted, isThere(2*time.Minute))
			})
		})
	}
}
