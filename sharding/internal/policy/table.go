package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// The ConfigMap of a ring's table, which is the parameter of its policies, has these keys.
const (
	tableGeneration = "generation"
	tableShards     = "shards"
	tableRows       = "rows"

	separator = ","
	// The slots are in rows: an API server that splits one text into all slots for each object spends
	// more than one that splits it into its rows, and one of these into its slots.
	rowSeparator, rowLength = ";", 32
)

// tablePrefix is the prefix of the name of the ConfigMap.
const tablePrefix = "sharding-table-"

// Table returns the ConfigMap with the table of a ring, in the namespace of the sharder. With 256
// shards it has some 20 KB. A table that is missing or invalid has no shards, so that no object is
// assigned.
func Table(ring *v1alpha1.ClusterRing, namespace string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tablePrefix + ring.Name, OwnerReferences: ownedBy(ring)},
		Data:       map[string]string{tableGeneration: "0", tableShards: "", tableRows: ""},
	}
	table := ring.Status.Table
	if table == nil {
		return cm
	}
	cm.Data[tableGeneration] = strconv.FormatInt(table.Generation, 10)
	next := nextOf(table)
	if next == nil {
		return cm
	}
	cm.Data[tableShards] = strings.Join(table.Shards, separator)
	var rows []string
	for row := range slices.Chunk(next, rowLength) {
		indexes := make([]string, len(row))
		for i, name := range row {
			indexes[i] = strconv.Itoa(slices.Index(table.Shards, name))
		}
		rows = append(rows, strings.Join(indexes, separator))
	}
	cm.Data[tableRows] = strings.Join(rows, rowSeparator)
	return cm
}

// nextOf returns the shard of each slot that places new objects, or nil if the table, which may be
// nil, is invalid.
func nextOf(table *v1alpha1.Table) []string {
	if table == nil || !areNames(table.Shards) {
		return nil
	}
	return place.TableOf(table).Next
}

// areNames reports whether all shards have names that can be the value of a label. Users can edit
// the status.
func areNames(shards []string) bool {
	return !slices.ContainsFunc(shards, func(name string) bool { return name == "" || len(validation.IsValidLabelValue(name)) > 0 })
}

// generationOf returns the generation of the table in a ConfigMap, or 0 if it has none.
func generationOf(cm *corev1.ConfigMap) int64 {
	generation, _ := strconv.ParseInt(cm.Data[tableGeneration], 10, 64) // other clients can edit it
	return generation
}

// isTable reports whether a ConfigMap has the content and the owner of another one.
func isTable(is, want *corev1.ConfigMap) bool {
	return maps.Equal(is.Data, want.Data) && len(is.BinaryData) == 0 &&
		slices.EqualFunc(is.OwnerReferences, want.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name })
}
