package plugin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// odd returns labels whose values YAML could misinterpret, and keys that a record stores in another
// form.
func odd() set {
	return set{
		"bool": "true", "number": "1e3", "octal": "0755", "empty": "", "null": "null", "type": "big", "a---SLASH---b": "x",
		strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60) + "." + strings.Repeat("d", 60) + "/name": "long",
	}
}

// note adds a person's own metadata to a record.
func (e *env) note(name string) {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: name}}
	patch := `{"metadata":{"labels":{"owner":"us"},"annotations":{"note":"two\nlines: yes"}}}`
	require.NoError(e.t, e.client.Patch(e.t.Context(), cm, rawMerge(patch)))
}

// file writes a temporary file and returns its path.
func (e *env) file(content string) string {
	e.t.Helper()
	path := filepath.Join(e.t.TempDir(), "records.yaml")
	require.NoError(e.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// lose deletes records, which users should never do: kubectl nodekeeper forget leaves a
// replacement.
func (e *env) lose(names ...string) {
	e.t.Helper()
	for _, name := range names {
		require.NoError(e.t, e.client.Delete(e.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.metadata, Name: name}}))
	}
}

func TestImportInTheSameClusterIsExact(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	for name, labels := range map[string]set{"node-1": odd(), "node-2": of("node-2", "r1"), "node-3": {}} {
		e.create(name, labels)
	}
	e.must("save", "--all")
	e.delete("node-2")
	e.create("node-2", nil)
	e.must("restore", "node-2") // its record has both a source and a restored incarnation
	e.note("node-1")
	before := e.must("export")
	e.lose("node-1", "node-2", "node-3")
	assert.Empty(t, e.must("export"))
	e.must("import", e.file(before))
	assert.Equal(t, before, e.must("export"))
	assert.Equal(t, odd(), e.record(t, "node-1").Labels)
	assert.Contains(t, e.must("import", e.file(before)), "node/node-1 unchanged")

	// The nodes are the ones that the records belong to, as before, so no restore is due.
	e.label("node-2", "r9")
	e.must("save", "node-2")
	assert.Equal(t, "r9", e.record(t, "node-2").Labels["rack"])
}

func TestImportRefusesWhatItWouldOverwrite(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	for _, name := range []string{"node-1", "node-2"} {
		e.create(name, of(name, "r1"))
	}
	e.must("save", "--all")
	old := e.file(e.must("export"))
	e.lose("node-2")
	e.label("node-1", "r2")
	e.must("save", "node-1")

	assert.Contains(t, e.fails("import", old), "records of node-1 already exist, nothing imported: use --overwrite")
	assert.Nil(t, e.record(t, "node-2"), "nothing is done")
	e.must("import", old, "--overwrite", "--dry-run=server")
	assert.Equal(t, "r2", e.record(t, "node-1").Labels["rack"])
	e.must("import", old, "--overwrite")
	assert.Equal(t, "r1", e.record(t, "node-1").Labels["rack"])
	assert.Equal(t, of("node-2", "r1"), e.record(t, "node-2").Labels)
}

func TestImportRefusesWhatIsNoRecord(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-1}\ndata: {labels_restored: \"5\", rack: r1}\n"
	for content, message := range map[string]string{
		"":           "there is no record in it",
		"foo: bar\n": "error: reading -: document 1: it has no apiVersion or no kind, so it is not a record: import the output of kubectl nodekeeper export\n",
		"a: [":       "document 1",
		"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n": "is not a record",
		good + "---\n" + good:                              `document 2: node "node-1" is there twice`,
		strings.Replace(good, `"5"`, `"x"`, 1):             "not a resourceVersion",
		strings.Replace(good, "data:", "dada:", 1):         "dada",
		strings.Replace(good, "rack: r1", "rack: a b", 1):  "must",
	} {
		r := e.runWith(content, "import", "-")
		assert.Equal(t, 1, r.code, content)
		assert.Contains(t, r.stderr, message)
		assert.NotContains(t, r.stderr, "<nil>")
	}
	assert.Contains(t, e.fails("import", "/none"), "/none")
	assert.Empty(t, e.must("export"), "nothing is stored")
}

// TestImportMovesToAnotherCluster imports records into a cluster whose resourceVersions are lower
// and higher than those of the records. One node exists already, one is created later, and one
// exists and has a record of its own.
func TestImportMovesToAnotherCluster(t *testing.T) {
	t.Parallel()
	old := newEnv(t)
	p := old.start("processor")
	for _, name := range []string{"there", "later", "owned"} {
		old.create(name, of(name, "r1"))
	}
	old.must("save", "--all")
	old.delete("later")
	old.create("later", nil)
	old.must("restore", "later")
	old.note("later")
	const savedAt, ofTool = "    nodekeeper.dev/saved-at", `    nodekeeper.dev/label-owners: '[{"manager":"argocd-controller","operation":"Apply","keys":"rack"}]'` + "\n"
	exported := regexp.MustCompile(`(?m)^    nodekeeper\.dev/label-owners: .*\n`).ReplaceAllString(old.must("export"), "")
	exported = strings.ReplaceAll(exported, savedAt, ofTool+savedAt)
	require.Equal(t, 3, strings.Count(exported, ofTool))
	old.stop(p)

	e := newEnvOf(t, ownPlane(t))
	e.start("watcher")
	e.start("processor")
	for _, name := range []string{"there", "owned"} {
		e.create(name, set{"own": "label", "kubernetes.io/hostname": name})
		e.saved(name, set{"own": "label", "kubernetes.io/hostname": name})
	}
	assert.Contains(t, e.fails("import", e.file(exported)), "owned, there")
	e.lose("there")
	printed := e.must("import", e.file(exported), "--overwrite")
	for _, line := range []string{"node/later imported", "node/owned replaced", "node/there imported", "node/there restored", "node/owned restored"} {
		assert.Contains(t, printed, line)
	}
	for _, name := range []string{"there", "owned"} {
		e.restored(name, of(name, "r1"))
	}
	assert.Empty(t, e.record(t, "later").Owners, "the tool of that name would remove the labels that it does not apply here")
	again := e.must("import", e.file(exported))
	for _, name := range []string{"later", "owned", "there"} {
		assert.Contains(t, again, "node/"+name+" unchanged", "an import that broke off can be done once more")
	}
	// With its own resourceVersions and UIDs the cluster continues as usual.
	for _, name := range []string{"there", "owned", "later"} {
		if name == "later" {
			e.create(name, nil)
			e.restored(name, of(name, "r1"))
		}
		e.label(name, "r2")
		e.saved(name, of(name, "r2"))
		e.remove(name)
		e.create(name, nil)
		e.restored(name, of(name, "r2"))
	}
	cm := &corev1.ConfigMap{}
	require.NoError(t, e.client.Get(t.Context(), client.ObjectKey{Namespace: e.metadata, Name: "later"}, cm))
	assert.Equal(t, "two\nlines: yes", cm.Annotations["note"], "what people wrote comes along")
	assert.NotContains(t, cm.Annotations, "nodekeeper.dev/exported-from")
}
