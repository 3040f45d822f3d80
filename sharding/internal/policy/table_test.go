package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/slots"
)

// The policies place new objects by the table without the silent shards.
func TestTableHasTheSlotsOfNewObjects(t *testing.T) {
	t.Parallel()
	r := ring()
	empty := map[string]string{"generation": "0", "shards": "", "rows": ""}
	cm := policy.Table(r, "sharder-system")
	assert.Equal(t, "sharder-system/sharding-table-web", cm.Namespace+"/"+cm.Name)
	assert.Equal(t, r.UID, metav1.GetControllerOf(cm).UID)
	assert.Equal(t, empty, cm.Data, "there is no table yet")

	all := func(i int32) []int32 { return slices.Repeat([]int32{i}, slots.Count) }
	r.Status.Table = &v1alpha1.Table{Generation: 7, Shards: []string{"a", "b"}, Slots: all(0), Next: all(1)}
	data := policy.Table(r, "sharder-system").Data
	assert.Equal(t, map[string]string{"generation": "7", "shards": "a,b", "rows": rows("1")}, data)
	r.Status.Table.Next = nil
	assert.Equal(t, rows("0"), policy.Table(r, "sharder-system").Data["rows"])

	empty["generation"] = "7"
	for name, bad := range map[string]v1alpha1.Table{
		"no label value": {Shards: []string{"a,b"}, Slots: all(0)},
		"no name":        {Shards: []string{""}, Slots: all(0)},
		"out of range":   {Shards: []string{"a"}, Slots: all(1)},
		"no slots":       {Shards: []string{"a"}},
	} {
		bad.Generation = 7
		r.Status.Table = &bad
		assert.Equal(t, empty, policy.Table(r, "sharder-system").Data, name)
	}
}

// rows returns the rows of a table in which all slots have the same index.
func rows(index string) string {
	row := strings.Join(slices.Repeat([]string{index}, 32), ",")
	return strings.Join(slices.Repeat([]string{row}, slots.Count/32), ";")
}

// The limit of a ConfigMap is 1 MiB.
func TestLargestTableFitsIntoAConfigMap(t *testing.T) {
	t.Parallel()
	r := ring()
	table := &v1alpha1.Table{Slots: slices.Repeat([]int32{v1alpha1.MaxShards - 1}, slots.Count)}
	for range v1alpha1.MaxShards {
		table.Shards = append(table.Shards, strings.Repeat("n", 63))
	}
	r.Status.Table = table
	size := 0
	for key, value := range policy.Table(r, "sharder-system").Data {
		size += len(key) + len(value)
	}
	assert.Less(t, size, 32<<10)
}
