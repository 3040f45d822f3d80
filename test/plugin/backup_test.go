package plugin_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/programs"
)

// TestRecipesForBackups types both recipes of the page. After the backup, live nodes are edited and
// return, more than ten programs write to one of these, one goes away, and all records are lost.
func TestRecipesForBackups(t *testing.T) {
	t.Parallel()
	page, err := pages.Read("docs/how-to/back-up-records.md")
	require.NoError(t, err)
	for _, heading := range []string{"With the plugin", "With kubectl and jq"} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			blocks, _ := pages.Parse(pages.Section(page.Content, heading))
			require.Len(t, blocks, 2, "a backup, and a restore")
			e := newEnv(t)
			r := &recipe{env: e, dir: t.TempDir(), watcher: e.start("watcher")}
			e.start("processor")
			for _, name := range []string{"edited", "returned", "merged", "away", "kept", "fresh"} {
				e.create(name, of(name, "r1"))
				e.saved(name, of(name, "r1"))
			}
			r.typed(blocks[0])

			e.label("edited", "r2")
			e.saved("edited", of("edited", "r2"))
			e.remove("returned")
			e.create("returned", nil)
			e.restored("returned", of("returned", "r1"))
			e.label("returned", "r3")
			e.saved("returned", of("returned", "r3"))
			r.merges("merged")
			e.label("kept", "r4")
			e.saved("kept", of("kept", "r4"))
			e.remove("away")
			e.remove("fresh")
			e.settled()
			e.lose("edited", "returned", "merged", "away", "fresh")
			if heading == "With the plugin" {
				e.lose("kept") // import stores nothing if a record differs
				r.imports(blocks[1])
			} else {
				r.typed(blocks[1])
				e.create("fresh", nil)
				e.restored("fresh", of("fresh", "r1"))
			}

			e.saved("edited", of("edited", "r2"))
			e.saved("returned", of("returned", "r3"))
			e.saved("merged", of("merged", "r6"))
			for name, rack := range map[string]string{"edited": "r2", "returned": "r3", "merged": "r6", "kept": "r4"} {
				own, _ := e.node(t, name)
				assert.Equal(t, of(name, rack), own, "a live node keeps its labels")
			}
			e.saved("kept", of("kept", "r4"))
			e.create("away", nil)
			e.restored("away", of("away", "r1"))
			e.remove("edited")
			e.create("edited", nil)
			e.restored("edited", of("edited", "r2"))
		})
	}
}

// recipe types the blocks of a page.
type recipe struct {
	*env
	dir     string
	watcher *programs.Program
}

// merges lets a node return with other labels than those of the backup, and so many programs write
// to it that the API server no longer records who has set its marker.
func (r *recipe) merges(name string) {
	r.t.Helper()
	r.label(name, "r5")
	r.saved(name, of(name, "r5"))
	r.remove(name)
	r.create(name, nil)
	r.restored(name, of(name, "r5"))
	r.label(name, "r6")
	r.saved(name, of(name, "r6"))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range 11 {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"by-tool-%d":""}}}`, i))
		require.NoError(r.t, r.client.Patch(r.t.Context(), n, patch, client.FieldOwner(fmt.Sprintf("tool-%d", i))))
	}
	for _, entry := range n.ManagedFields {
		require.NotEqual(r.t, "nodekeeper-processor", entry.Manager, "its entry is merged")
	}
}

// imports types the import, and checks what it prints about each node. One node has returned and
// never had its labels, since no watcher runs.
func (r *recipe) imports(block pages.Block) {
	r.t.Helper()
	r.stop(r.watcher)
	r.create("fresh", nil)
	printed := r.typed(block)
	r.restored("fresh", of("fresh", "r1"))
	r.watcher = r.start("watcher")
	effects := map[string]string{"away": "", "fresh": "; it is live and gets the labels of the record, except what users have set since it was created"}
	for _, name := range []string{"edited", "returned", "merged", "kept"} {
		effects[name] = "; it is live and keeps its own labels, which are saved"
	}
	for name, effect := range effects {
		assert.Contains(r.t, printed, "node/"+name+" imported"+effect+" (dry run)\n")
		assert.Contains(r.t, printed, "node/"+name+" imported"+effect+"\n")
	}
}

// typed types a block, and returns what it prints.
func (r *recipe) typed(block pages.Block) string {
	r.t.Helper()
	var all strings.Builder
	flags := " " + strings.Join(r.Flags, " ")
	here := strings.NewReplacer("nodekeeper export", "nodekeeper export"+flags, "nodekeeper import", "nodekeeper import"+flags, "node-metadata", r.metadata)
	for _, step := range block.Steps() {
		if strings.Contains(step.Script, "| jq") || strings.Contains(step.Script, "\n  jq") {
			if _, err := exec.LookPath("jq"); err != nil {
				r.t.Skip("there is no jq on this machine")
			}
		}
		if strings.HasPrefix(step.Script, "kubectl rollout restart deployment/watcher") {
			r.stop(r.watcher)
			r.watcher = r.start("watcher")
			continue
		}
		printed, code := r.Shell(r.dir, "", here.Replace(step.Script))
		isAlreadyThere := strings.HasPrefix(step.Script, "kubectl create") && strings.Contains(printed, "AlreadyExists")
		require.True(r.t, code == 0 || isAlreadyThere, "%s\n%s", step.Script, printed)
		all.WriteString(printed)
	}
	return all.String()
}

func TestReplacedRecordOfALiveNodeIsReported(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.saved("node-1", of("node-1", "r1"))
	e.remove("node-1")
	cm := &corev1.ConfigMap{}
	require.NoError(t, e.client.Get(t.Context(), types.NamespacedName{Namespace: e.metadata, Name: "node-1"}, cm))
	cm.ResourceVersion, cm.UID = "", ""
	cm.Labels["velero.io/restore-name"] = "last-week"
	e.create("node-1", nil)
	e.restored("node-1", of("node-1", "r1"))
	e.label("node-1", "r2")
	e.saved("node-1", of("node-1", "r2"))
	e.settled()
	e.lose("node-1")
	require.NoError(t, e.client.Create(t.Context(), cm))

	e.eventually(func(c *assert.CollectT) {
		r := e.run("status", "--stuck-after=1s")
		assert.Equal(c, 1, r.code)
		assert.Contains(c, r.stdout, "node-1: its record does not follow it: the record was replaced\n"+
			"    to save the labels of the node: kubectl nodekeeper save node-1; to restore those of the record: kubectl nodekeeper restore node-1\n")
	}, "status says so")
	e.must("save", "node-1")
	assert.Equal(t, of("node-1", "r2"), e.record(t, "node-1").Labels)
	assert.Zero(t, e.run("status", "--stuck-after=1s").code)
}
