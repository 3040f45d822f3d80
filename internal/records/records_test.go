package records_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/test/controlplane"
)

type set = map[string]string

func newRecords(t *testing.T) *records.Records {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	return &records.Records{Client: c, Namespace: controlplane.Namespace(t, c)}
}

// of returns a record of node-1.
func of(rev string, own set) record.Record {
	return record.Record{Node: "node-1", Labels: own, Revision: revision.MustParse(rev), Source: "a"}
}

func write(t *testing.T, r *records.Records, read records.Stored, next record.Record) records.Stored {
	t.Helper()
	stored, err := r.Write(t.Context(), read, next)
	require.NoError(t, err)
	return stored
}

func get(t *testing.T, r *records.Records) records.Stored {
	t.Helper()
	stored, err := r.Get(t.Context(), "node-1")
	require.NoError(t, err)
	return stored
}

func TestWriteReturnsTheStoredRecord(t *testing.T) {
	r := newRecords(t)
	assert.Equal(t, records.Stored{}, get(t, r))
	first := write(t, r, records.Stored{}, of("7", set{"example.com/rack": "r1"}))
	stored := get(t, r)
	assert.Equal(t, stored.Object.ResourceVersion, first.Object.ResourceVersion)
	assert.Equal(t, set{"example.com/rack": "r1"}, stored.Record.Labels)

	second := write(t, r, first, of("8", set{"rack": "r2"}))
	assert.Equal(t, second.Object.ResourceVersion, get(t, r).Object.ResourceVersion)
	assert.Equal(t, set{"rack": "r2"}, get(t, r).Record.Labels)
}

func TestWritesAreConditionalOnTheRecordRead(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *records.Records, records.Stored) records.Stored{
		"there is one by now": func(*testing.T, *records.Records, records.Stored) records.Stored { return records.Stored{} },
		"it has changed": func(t *testing.T, r *records.Records, read records.Stored) records.Stored {
			t.Helper()
			write(t, r, read, of("8", set{"rack": "r2"}))
			return read
		},
		"it is gone": func(t *testing.T, r *records.Records, read records.Stored) records.Stored {
			t.Helper()
			require.NoError(t, r.Remove(t.Context(), read))
			return read
		},
		"it is another": func(t *testing.T, r *records.Records, read records.Stored) records.Stored {
			t.Helper()
			require.NoError(t, r.Remove(t.Context(), read))
			write(t, r, records.Stored{}, of("8", set{"rack": "r2"}))
			return read
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecords(t)
			read := change(t, r, write(t, r, records.Stored{}, of("7", set{"rack": "r1"})))
			before := get(t, r)
			_, err := r.Write(t.Context(), read, of("9", set{"rack": "r3"}))
			require.ErrorIs(t, err, records.ErrStale)
			if read.Object != nil {
				require.ErrorIs(t, r.Remove(t.Context(), read), records.ErrStale)
				require.ErrorIs(t, r.Annotate(t.Context(), read.Object, map[string]*string{"k": new("v")}), records.ErrStale)
				require.ErrorIs(t, r.Replace(t.Context(), read.Object, read.Object), records.ErrStale)
			} else {
				require.ErrorIs(t, r.Create(t.Context(), of("9", nil).ConfigMap(r.Namespace)), records.ErrStale)
			}
			assert.Equal(t, before, get(t, r))
		})
	}
}

func TestGetOfUnreadableRecordIsNotAnError(t *testing.T) {
	r := newRecords(t)
	cm := of("7", set{"rack": "r1"}).ConfigMap(r.Namespace)
	cm.Data["a---SLASH---b---SLASH---c"] = "no label has such a key"
	require.NoError(t, r.Client.Create(t.Context(), cm))
	stored := get(t, r)
	assert.Nil(t, stored.Record)
	assert.Equal(t, cm.UID, stored.Object.UID)
	assert.ErrorIs(t, stored.Unreadable, record.ErrUnreadable)
}

func TestEachSkipsForeignConfigMaps(t *testing.T) {
	r := newRecords(t)
	write(t, r, records.Stored{}, of("7", set{"rack": "r1"}))
	floor := of("8", nil)
	floor.Node, floor.Floor = "node-2", true
	write(t, r, records.Stored{}, floor)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "istio-ca-root-cert"}, Data: set{"root-cert.pem": "-----"}}
	require.NoError(t, r.Client.Create(t.Context(), foreign))

	var all, named []string
	require.NoError(t, r.Each(t.Context(), func(cm *corev1.ConfigMap) error {
		all = append(all, cm.Name)
		return nil
	}))
	assert.Equal(t, []string{"node-1", "node-2"}, all)
	require.NoError(t, r.EachName(t.Context(), func(node string) { named = append(named, node) }))
	assert.Equal(t, []string{"node-1"}, named, "nothing is saved of a node that was forgotten")
}

func TestForgetRemovesMetadataOfUsers(t *testing.T) {
	r := newRecords(t)
	read := write(t, r, records.Stored{}, of("7", set{"rack": "r1"}))
	require.NoError(t, r.Annotate(t.Context(), read.Object, map[string]*string{"example.com/note": new("keep")}))
	floor := of("9", nil)
	floor.Floor = true
	_, err := r.Forget(t.Context(), get(t, r), floor)
	require.NoError(t, err)
	stored := get(t, r)
	assert.True(t, stored.Record.Floor)
	assert.NotContains(t, stored.Object.Annotations, "example.com/note")
	assert.Equal(t, read.Object.UID, stored.Object.UID)
}
