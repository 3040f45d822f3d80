package record_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/record"
)

const refusals = "nodekeeper.dev/refusals"

func TestRefusalsAreStored(t *testing.T) {
	r := withheld()
	r.Withheld = append(r.Withheld, record.Withheld{
		Labels: map[string]string{"pool": "a", "rack": "r7"}, State: record.RefusedFor("u2"), Refusals: map[string]string{"pool": "immutable", "other": "x"},
	})
	r.Withheld[0].Refusals = map[string]string{role: "of before"} // it waits for another try
	cm := r.ConfigMap("records")
	assert.JSONEq(t, `{"pool":"immutable"}`, cm.Annotations[refusals])
	read, err := record.Parse(cm)
	require.NoError(t, err)
	assert.True(t, read.Equal(r))
	assert.Equal(t, map[string]string{"pool": "immutable"}, read.Withheld[2].Refusals)
	assert.Empty(t, read.Withheld[0].Refusals)
	assert.Equal(t, []map[string]string{{"rack": "r7"}, {"pool": "a"}}, []map[string]string{read.Withheld[2].ByRefusal()[0].Labels, read.Withheld[2].ByRefusal()[1].Labels})

	cm.Annotations[refusals] = "no JSON"
	read, err = record.Parse(cm)
	require.NoError(t, err, "a reason must not keep a record from being read")
	assert.Empty(t, read.Withheld[2].Refusals)

	r.Withheld = nil
	r.Write(cm)
	assert.NotContains(t, cm.Annotations, refusals)
}

func TestRefusalsAreBounded(t *testing.T) {
	assert.Equal(t, `policy "x" denied: [31m no`, record.Refusal("policy \"x\"\n denied: \x1b[31m\tno"))
	long := record.Refusal(strings.Repeat("é", 300))
	assert.Equal(t, strings.Repeat("é", 198)+"…", long)

	w := record.Withheld{Labels: map[string]string{}, State: record.RefusedFor("u2"), Refusals: map[string]string{}}
	for i := range 100 {
		key := fmt.Sprintf("key-%02d", i)
		w.Labels[key], w.Refusals[key] = "1", strings.Repeat(`"`, 400)
	}
	r := withheld()
	r.Withheld = []record.Withheld{w}
	cm := r.ConfigMap("records")
	assert.Less(t, len(cm.Annotations[refusals]), 20<<10, "all annotations of an object share 256 KiB")
	read, err := record.Parse(cm)
	require.NoError(t, err)
	assert.Len(t, read.Withheld[0].Labels, 100)
	assert.NotEmpty(t, read.Withheld[0].Refusals["key-00"])
}
