package plugin_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHabitsOfKubectlUsers checks that habitual commands do what users expect, or report what to do
// instead.
func TestHabitsOfKubectlUsers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	node := "node-1"
	e.create(node, set{"rack": "r7"})
	e.saved(node, set{"rack": "r7"})
	e.stop(w)
	e.stop(p)

	assert.Contains(t, e.refuses("lst"), "did you mean list?")
	assert.Contains(t, e.refuses("explan", node), "did you mean explain?")
	assert.Contains(t, e.refuses("list", "--selectr=rack=r7"), "did you mean --selector?")
	assert.Contains(t, e.refuses("list", "-o", "jsnopath={.items}"), "-o jsnopath is not known: did you mean jsonpath?")
	assert.Contains(t, e.refuses("list", "--state=liv"), "--state=liv is not known: did you mean live?")
	assert.Contains(t, e.refuses("help", "lst"), "did you mean list?")
	assert.Contains(t, e.must("help", "list"), "kubectl nodekeeper list [flags]")
	assert.Contains(t, e.refuses("list", "-n", "default"), "nodes are in no namespace")
	assert.Contains(t, e.refuses("list", "-A"), "nodes are in no namespace")
	assert.Contains(t, e.fails("pending", "nobody"), `node "nobody" not found`)
	for _, namespace := range []string{"", "Bad_Name"} { // an empty variable in a script would select all namespaces
		r := e.Command(t.Context(), "kubectl", "nodekeeper", "export", "--metadata-namespace="+namespace)
		out, err := r.CombinedOutput()
		require.Error(t, err)
		assert.Equal(t, 2, r.ProcessState.ExitCode(), "%s", out)
		assert.Contains(t, string(out), "is not the name of a namespace")
	}

	help := e.must("list", "--help")
	assert.NotContains(t, help, "--kubeconfig")
	assert.Contains(t, help, `Use "kubectl nodekeeper options"`)
	options := e.must("options")
	assert.Contains(t, options, "--kubeconfig")
	assert.Contains(t, options, "--metadata-namespace")

	assert.Equal(t, "NODE     STATE   SOURCE\nnode-1   live    1\n", e.must("list", "-o", "custom-columns=NODE:.name,STATE:{.state},SOURCE:labels"))
	assert.Equal(t, []string{"node-1", "r7", "<none>"}, strings.Fields(
		e.must("show", node, "--no-headers", "-o", "custom-columns=NODE:.name,RACK:.record.labels.rack,NOT:.there")))
	assert.Contains(t, e.refuses("list", "-o", "custom-columns"), "needs columns")
	assert.Contains(t, e.refuses("list", "-o", "custom-columns=NODE"), "is not HEADER:PATH")

	r := e.run("list", "-v=6")
	assert.Zero(t, r.code)
	assert.Regexp(t, `verb="GET" url="https://.*/api/v1/nodes`, r.stderr, "each request is logged")
	assert.NotContains(t, e.run("list").stderr, "GET")

	assert.Contains(t, e.must("forget", node, "--dry-run", "--yes"), "(dry run)")
	require.NotNil(t, e.record(t, node), "nothing was done")
	file := filepath.Join(t.TempDir(), "records.yaml")
	require.NoError(t, os.WriteFile(file, []byte(e.must("export")), 0o600))
	assert.Contains(t, e.must("import", "-f", file, "--dry-run"), "node/"+node)
	assert.Equal(t, e.must("import", file, "--dry-run"), e.must("import", "--filename="+file, "--dry-run=client"))
	assert.Contains(t, e.refuses("import", "-f", file, file), "give one file")
	assert.Contains(t, e.refuses("import", "-f", file, "-f", file), "give one file", "none is left out in silence")
	assert.Contains(t, e.refuses("import", "-f", ""), "give one file")
}

// TestListGoesOnWithWatch checks that list shows all nodes, and then each node whose line changes.
func TestListGoesOnWithWatch(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	for _, name := range []string{"node-1", "node-2"} {
		e.create(name, set{"rack": "r7"})
		e.saved(name, set{"rack": "r7"})
	}
	e.settled()
	out := &lineBuffer{}
	cmd := e.Command(t.Context(), "kubectl", append([]string{"nodekeeper", "list", "--watch", "--no-headers"}, e.Flags...)...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	e.eventually(func(c *assert.CollectT) { assert.Contains(c, out.String(), "Watching") }, "it watches")
	assert.Regexp(t, `^node-1 +live .*\nnode-2 +live .*\nWatching`, out.String())

	e.remove("node-2")
	e.eventually(func(c *assert.CollectT) { assert.Regexp(c, `(?m)^node-2 +away +1 `, out.String()) }, "it is away")
	e.create("node-2", nil)
	e.restored("node-2", set{"rack": "r7"})
	e.eventually(func(c *assert.CollectT) { assert.Regexp(c, `(?s)Watching.*\nnode-2 +live +1 `, out.String()) }, "it is back")
	assert.NotRegexp(t, `(?s)Watching.*\nnode-1 `, out.String(), "nothing has changed there")

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait(), "an interrupted watch is no error: %s", out)
	assert.Contains(t, e.refuses("list", "--watch", "-o", "yaml"), "--watch shows a table")
	e.stop(w)
	e.stop(p)
}

// TestExplainPrintsTheHistoryOfANode also covers the events that programs have reported.
func TestExplainPrintsTheHistoryOfANode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	node := "node-1"
	e.create(node, set{"rack": "r7"})
	e.saved(node, set{"rack": "r7"})
	e.eventually(func(c *assert.CollectT) {
		out := e.must("explain", node)
		assert.Contains(c, out, "LabelsSaved: ")
		assert.Contains(c, out, "the Node was created")
		assert.Contains(c, out, "The node has its saved labels.")
	}, "the event is there")
	e.remove(node)
	assert.Contains(t, e.must("explain", node), "There is no Node of this name. When one is created, it gets 1 label.")
	e.stop(p)
	e.create(node, set{"made": "anew"})
	e.eventually(func(c *assert.CollectT) {
		out := e.must("explain", node)
		assert.Contains(c, out, "The node does not have its saved labels yet.")
		assert.Contains(c, out, "rack: saved as r7, not on the node\n    the pending restore sets it")
		assert.Contains(c, out, "made: not saved, on the node as anew\n    it is not saved: the pending restore removes it")
		assert.Contains(c, out, "no processor is ready")
	}, "the return is recorded")
	var data struct {
		State   string
		Moments []struct{ Source string }
		Labels  []struct{ Key, Why string }
	}
	require.NoError(t, json.Unmarshal([]byte(e.must("explain", node, "-o", "json")), &data))
	assert.Equal(t, "restoring", data.State)
	assert.Len(t, data.Labels, 2)
	assert.NotEmpty(t, data.Moments)
	e.stop(w)
}

// TestListReportsDeletedNodes that have no record, and away nodes whose record is removed.
func TestListReportsDeletedNodes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.start("watcher"), e.start("processor")
	e.create("node-1", set{"rack": "r7"})
	e.saved("node-1", set{"rack": "r7"})
	e.settled()
	e.stop(w)
	e.stop(p)
	e.create("node-2", set{"rack": "r7"})
	out := e.background("list", "--watch", "--no-headers")
	e.eventually(func(c *assert.CollectT) { assert.Contains(c, out.String(), "Watching") }, "it watches")
	assert.Regexp(t, `^node-1 +live .*\nnode-2 +never-seen .*\nWatching`, out.String())

	e.delete("node-2")
	e.eventually(func(c *assert.CollectT) { assert.Regexp(c, `(?m)^node-2 +gone +0 `, out.String()) }, "nothing is left of it")
	e.delete("node-1")
	e.eventually(func(c *assert.CollectT) { assert.Regexp(c, `(?m)^node-1 +away +1 `, out.String()) }, "its record is left")
	e.must("forget", "node-1", "--yes")
	e.eventually(func(c *assert.CollectT) { assert.Regexp(c, `(?m)^node-1 +gone +0 `, out.String()) }, "its record is removed")
}

// background starts a command, which is interrupted at the end of the test, and returns its output.
func (e *env) background(args ...string) *lineBuffer {
	e.t.Helper()
	out := &lineBuffer{}
	cmd := e.Command(context.WithoutCancel(e.t.Context()), "kubectl", append(append([]string{"nodekeeper"}, args...), e.Flags...)...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(e.t, cmd.Start())
	e.t.Cleanup(func() {
		assert.NoError(e.t, cmd.Process.Signal(os.Interrupt))
		assert.NoError(e.t, cmd.Wait(), "an interrupted watch is no error: %s", out)
	})
	return out
}
