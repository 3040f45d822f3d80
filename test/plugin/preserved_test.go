package plugin_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// patchNode changes a Node as kubectl does.
func (e *env) patchNode(name, patch string) {
	e.t.Helper()
	n := &corev1.Node{}
	n.Name = name
	require.NoError(e.t, e.client.Patch(e.t.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
}

// TestTaintsAndAnnotations checks that every command shows and preserves them like the servers.
func TestTaintsAndAnnotations(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--preserve-annotations=example.com/*", "--preserve-taints=dedicated")
	const name = "node-1"
	e.create(name, set{"rack": "r1"})
	e.patchNode(name, `{"metadata":{"annotations":{"example.com/owner":"team-a","other":"x"}},"spec":{"taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"},{"key":"mine","effect":"NoSchedule"}]}}`)
	e.must("save", name)
	want := set{"rack": "r1", labels.AnnotationKey("example.com/owner"): "team-a", labels.TaintKey("dedicated", "NoSchedule"): "gpu"}
	assert.Equal(t, want, e.record(t, name).Labels)
	r := e.run("show", name)
	assert.Contains(t, r.stdout, "Labels:         1\n  rack=r1\nAnnotations:    1\n  example.com/owner=team-a\nTaints:         1\n  dedicated=gpu:NoSchedule\n")
	r = e.run("show", name, "-o", "json")
	assert.Contains(t, r.stdout, `"annotations": {`)
	assert.Contains(t, r.stdout, `"effect": "NoSchedule"`)
	assert.Empty(t, e.run("diff", name).stdout)

	e.patchNode(name, `{"metadata":{"annotations":{"example.com/owner":"team-b\u001b[2J\n"}},"spec":{"taints":null}}`)
	r = e.run("diff", name)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stdout, "-annotation example.com/owner=team-a\n+annotation example.com/owner=\"team-b\\x1b[2J\\n\"\n-taint dedicated=gpu:NoSchedule\n")
	assert.NotContains(t, e.run("diff", name, "--preserve-taints=").stdout, "+taint")

	e.delete(name)
	e.must("set", name, "rack=r2", "--overwrite", "--ignore-missing-end")
	want["rack"] = "r2"
	assert.Equal(t, want, e.record(t, name).Labels, "taints and annotations stay")
	exported := e.must("export", name)
	assert.Contains(t, exported, "'---TAINT---NoSchedule---dedicated': gpu")

	// Commands read many nodes with a list.
	names := []string{name}
	for i := range 12 {
		names = append(names, "other-"+strconv.Itoa(i))
		e.create(names[i+1], nil)
		e.patchNode(names[i+1], `{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"}]}}`)
	}
	e.create(name, nil)
	r = e.run(append([]string{"restore", "--dry-run=client", "--ignore-missing-end"}, names...)...)
	assert.Contains(t, r.stdout, "+annotation example.com/owner=team-a\n+rack=r2\n+taint dedicated=gpu:NoSchedule\n")
	e.must(append([]string{"save"}, names...)...)
	assert.Equal(t, set{labels.TaintKey("dedicated", "NoSchedule"): ""}, e.record(t, "other-11").Labels)

	e.must("forget", "other-11", "--yes")
	assert.Equal(t, set{labels.TaintKey("dedicated", "NoSchedule"): ""}, e.record(t, "other-11").Labels, "what the node has is saved in its place")
	assert.Contains(t, e.refuses("set", name, "annotation:a=b"), "is not a label key")
}
