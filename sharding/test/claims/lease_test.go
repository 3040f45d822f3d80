package claims

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// TestAPIServerReportsTheAgeOfARenewal covers R8: the API server's Date header and the time of the
// managedFields entry that owns spec.renewTime determine the age of a renewal, independently of
// other clocks and of later labels.
func TestAPIServerReportsTheAgeOfARenewal(t *testing.T) {
	t.Parallel()
	c := adminClient(t)
	wrong := metav1.NewMicroTime(time.Now().Add(-time.Hour)) // the shard's clock
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.Namespace(t, c), Name: "web-0"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("web-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: &wrong},
	}
	require.NoError(t, c.Create(t.Context(), lease, client.FieldOwner("shard")))
	begun, age := renewal(t, lease)
	assert.Less(t, age, time.Minute, "the shard's clock, which is off by an hour, has no effect")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, age := renewal(t, lease)
		assert.Greater(collect, age, time.Second)
	}, patience, period, "it grows")
	state := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"state":"ready"}}}`))
	require.NoError(t, c.Patch(t.Context(), lease, state, client.FieldOwner("sharder")))
	labelled, _ := renewal(t, lease)
	assert.Equal(t, begun, labelled, "a label is no renewal")
	lease.Spec.RenewTime = new(metav1.NewMicroTime(wrong.Add(time.Second)))
	require.NoError(t, c.Update(t.Context(), lease, client.FieldOwner("shard")))
	renewed, _ := renewal(t, lease)
	assert.True(t, renewed.After(begun), "%s is after %s", renewed, begun)
}

// renewal returns when a Lease was last renewed and how long ago that was, both by the API server's
// clock.
func renewal(t *testing.T, lease *coordinationv1.Lease) (at time.Time, age time.Duration) {
	t.Helper()
	h, err := rest.HTTPClientFor(api.Config)
	require.NoError(t, err)
	address, err := url.JoinPath(api.Config.Host, "apis/coordination.k8s.io/v1/namespaces", lease.Namespace, "leases", lease.Name)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	resp, err := h.Do(req)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	now, err := http.ParseTime(resp.Header.Get("Date"))
	require.NoError(t, err)
	var got coordinationv1.Lease
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	for _, entry := range got.ManagedFields {
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		require.NoError(t, json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), &fields))
		if _, owns := fields.Spec["f:renewTime"]; owns {
			return entry.Time.Time, now.Sub(entry.Time.Time)
		}
	}
	require.Fail(t, "no entry owns renewTime")
	return time.Time{}, 0
}
