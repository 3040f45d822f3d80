package plugin_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/kubectl"
)

// sessionDir is the directory of the sessions from which the docs are generated.
var sessionDir = filepath.Join("..", "..", "docs", "cli", "sessions")

// story is the single cluster in which everything happens.
type story struct {
	*env

	sessions *kubectl.Sessions // by command
}

// TestStory checks the output and the effects of every command. It has an API server of its own, so
// that names and versions are the same in each run.
func TestStory(t *testing.T) {
	t.Parallel()
	s := &story{env: newEnvIn(t, ownPlane(t), "node-metadata-transactions", "node-metadata", ring.DefaultNamespace)}
	s.sessions = kubectl.NewSessions(strings.Fields(s.must("--version"))[1])
	s.fourDigits()
	s.lookWhileAllIsWell()
	s.actWhileAllIsWell()
	s.actWhileNoWatcherRuns()
	s.lookWhileNoProcessorRuns()
	s.removeAndMove()
	recorded := s.sessions.All()
	for name, session := range recorded {
		if (name == "watch" || name == "explain") && !*update {
			// Events of nodes, records and transactions arrive over three paths. Those within
			// milliseconds, or with times in the same second, may appear in any order.
			want, err := os.ReadFile(filepath.Join(sessionDir, name+".txt"))
			require.NoError(t, err)
			assert.ElementsMatch(t, strings.Split(string(want), "\n"), strings.Split(session, "\n"))
			continue
		}
		s.golden(filepath.Join(sessionDir, name+".txt"), session)
	}
	if *update {
		return
	}
	kept, err := os.ReadDir(sessionDir)
	require.NoError(t, err)
	assert.Len(t, recorded, len(kept), "sessions that no test records")
}

// fourDigits makes all further resourceVersions have four digits, so that columns always have the
// same width.
func (s *story) fourDigits() {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "count"}}
	require.NoError(s.t, s.client.Create(s.t.Context(), cm))
	for i := 0; len(cm.ResourceVersion) < 4; i++ {
		cm.Data = set{"n": strconv.Itoa(i)}
		require.NoError(s.t, s.client.Update(s.t.Context(), cm))
	}
}

func (s *story) lookWhileAllIsWell() {
	w, p := s.start("watcher"), s.start("processor")
	for name, rack := range (set{"worker-1": "r7", "worker-2": "r7", "worker-3": "r8"}) {
		s.create(name, of(name, rack))
		s.saved(name, of(name, rack))
	}
	s.settled()
	s.live("watch", "kubectl nodekeeper watch", 6, func() {
		s.label("worker-2", "r9")
		s.saved("worker-2", of("worker-2", "r9"))
		s.settled()
		s.remove("worker-2")
		s.create("worker-2", machine("worker-2"))
		s.restored("worker-2", of("worker-2", "r9"))
	})
	s.live("pending", "kubectl nodekeeper pending --watch", 4, func() {
		s.remove("worker-3")
	})
	s.live("ui", "kubectl nodekeeper ui", 2, func() {})
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, s.must("status"), "1 of 1 watcher alive, 1 of 1 processor alive")
	}, "both have their places on the ring")
	s.shell("status", "kubectl nodekeeper status")
	s.shell("status", "kubectl nodekeeper status -o wide | grep -E '^  [a-z]|restore-mode|save-delay'")
	s.shell("version", "kubectl nodekeeper version")
	s.shell("list", "kubectl nodekeeper list")
	s.shell("list", "kubectl nodekeeper list --state=away -l rack=r8 -o name")
	s.output("list.wide", "list", "-o", "wide")
	s.output("list.yaml", "list", "-o", "yaml")
	s.output("list.json", "list", "-o", "json")
	s.output("status.yaml", "status", "-o", "yaml")
	s.output("status.json", "status", "-o", "json")
	s.stop(w)
	s.stop(p)
	s.forgetEvents()
	s.shell("show", "kubectl nodekeeper show worker-3")
	s.shell("show", "kubectl nodekeeper show worker-3 -o jsonpath='{.record.labels.rack}{\"\\n\"}'")
	s.outputSaying("Note: no processor is alive, so this uses the settings of the last one, processor-2.\n", "show.yaml", "show", "worker-2", "-o", "yaml")
	s.output("show.json", "show", "worker-3", "-o", "json")
}

// forgetEvents deletes all events about Nodes: which events exist depends on timing, as processors
// limit their number.
func (s *story) forgetEvents() {
	s.t.Helper()
	require.NoError(s.t, s.client.DeleteAllOf(s.t.Context(), &eventsv1.Event{}, client.InNamespace(metav1.NamespaceDefault)))
}

func (s *story) actWhileAllIsWell() {
	w, p := s.start("watcher"), s.start("processor")
	s.shell("set", "kubectl nodekeeper set worker-3 rack=r9 example.com/team-")
	s.shell("set", "kubectl nodekeeper set worker-3 rack=r9 example.com/team- --overwrite")
	s.shell("set", "kubectl nodekeeper set worker-1 rack=r9")
	s.create("worker-3", machine("worker-3"))
	s.restored("worker-3", set{"kubernetes.io/hostname": "worker-3", "rack": "r9"})
	s.shell("set", "kubectl get node worker-3 -L rack -o custom-columns=NAME:.metadata.name,RACK:.metadata.labels.rack")
	s.stop(w)
	s.stop(p)
}

func (s *story) actWhileNoWatcherRuns() {
	p := s.start("processor")
	s.label("worker-1", "r8")
	s.shell("diff", "kubectl nodekeeper diff worker-1")
	s.shell("save", "kubectl nodekeeper save worker-1 --dry-run=client")
	s.shell("save", "kubectl nodekeeper save worker-1")
	s.shell("save", "kubectl nodekeeper save --all")
	s.delete("worker-2")
	s.create("worker-2", machine("worker-2"))
	s.shell("restore", "kubectl nodekeeper list --state=restoring")
	s.shell("restore", "kubectl nodekeeper restore worker-2 --dry-run=server")
	s.shell("restore", "kubectl nodekeeper restore worker-2")
	s.label("worker-2", "r1")
	s.shell("restore", "kubectl nodekeeper restore worker-2")
	s.restored("worker-2", of("worker-2", "r1"))
	s.must("save", "worker-2")
	s.stop(p)
}

func (s *story) lookWhileNoProcessorRuns() {
	w := s.start("watcher")
	s.label("worker-1", "r9")
	s.delete("worker-1")
	s.create("worker-1", machine("worker-1"))
	require.NoError(s.t, s.client.Create(s.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.transactions, Name: "notes", Labels: set{txn.TypeLabel: "added"}}, Data: set{"by": "somebody"},
	}))
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.queued(c), 4) }, "all is recorded")
	s.stop(w)
	s.shell("pending", "kubectl nodekeeper pending")
	const note = "Note: no processor is alive, so this uses the settings of the last one, processor-5.\n"
	s.outputSaying(note, "pending.wide", "pending", "-o", "wide")
	s.outputSaying(note, "pending.yaml", "pending", "worker-1", "-o", "yaml")
	s.outputSaying(note, "pending.json", "pending", "-o", "json")
	s.forgetEvents()
	s.shell("show", "kubectl nodekeeper show worker-1")
	s.shell("explain", "kubectl nodekeeper explain worker-1")
	s.eventually(func(c *assert.CollectT) { // times are whole seconds
		assert.Contains(c, s.run("status", "--stuck-after=1ms").stdout, "2 things stuck")
	}, "the transactions are older than that")
	s.shell("status", "kubectl nodekeeper status --stuck-after=1ms")
	s.output("stuck.yaml", "status", "--stuck-after=1ms", "-o", "yaml")
	s.shell("retry", "kubectl nodekeeper retry worker-1 notes")
	updated := s.shortNameOfOldest("worker-1")
	s.shell("discard", "kubectl nodekeeper discard "+updated+" --dry-run=client")
	s.answer("y", "discard", "kubectl nodekeeper discard notes")
	p := s.start("processor")
	s.restored("worker-1", of("worker-1", "r9"))
	s.stop(p)
}

func (s *story) removeAndMove() {
	w, p := s.start("watcher"), s.start("processor")
	s.remove("worker-2")
	s.shell("export", "kubectl nodekeeper export > records.yaml")
	s.shell("export", "kubectl nodekeeper export worker-2")
	s.answer("n", "forget", "kubectl nodekeeper forget worker-1")
	s.answer("y", "forget", "kubectl nodekeeper forget worker-2")
	require.Nil(s.t, s.record(s.t, "worker-2"))
	s.shell("import", "kubectl nodekeeper import -f records.yaml")
	require.NotNil(s.t, s.record(s.t, "worker-2"))
	s.label("worker-3", "r2")
	s.saved("worker-3", set{"kubernetes.io/hostname": "worker-3", "rack": "r2"})
	s.settled()
	s.shell("import", "kubectl nodekeeper import -f records.yaml --dry-run=client")
	s.age("worker-2")
	s.shell("prune", "kubectl nodekeeper prune --older-than=60d --dry-run=client")
	s.answer("y", "prune", "kubectl nodekeeper prune --older-than=30d")
	require.Nil(s.t, s.record(s.t, "worker-2"))
	s.stop(w)
	s.stop(p)
}

// age makes a node appear absent for 45 days, as a processor with a retention time would record it.
func (s *story) age(name string) {
	patch := `{"metadata":{"annotations":{"nodekeeper.dev/away-since":"` + metav1.Now().AddDate(0, 0, -45).UTC().Format("2006-01-02T15:04:05Z") + `"}}}`
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.metadata, Name: name}}
	require.NoError(s.t, s.client.Patch(s.t.Context(), cm, rawMerge(patch)))
}

// shell runs a command line in a shell, and adds the line and its output to a session.
func (s *story) shell(session, line string) { s.typed("", session, line) }

// answer does the same, and types an answer to the command's question.
func (s *story) answer(answer, session, line string) { s.typed(answer+"\n", session, line) }

func (s *story) typed(stdin, session, line string) {
	s.t.Helper()
	text, code := s.Shell(s.workDir(), stdin, line)
	if stdin != "" { // a terminal shows typed input
		text = strings.Replace(text, "[y/N] ", "[y/N] "+stdin, 1)
	}
	s.sessions.Add(session, line, text, code)
}

// workDir returns the directory of the story's files.
func (s *story) workDir() string {
	dir := filepath.Join(filepath.Dir(s.Kubeconfig), "work")
	require.NoError(s.t, os.MkdirAll(dir, 0o700))
	return dir
}

// live runs a command that continues while something happens, and ends it once it has printed
// atLeast lines.
func (s *story) live(session, line string, atLeast int, happen func()) {
	s.t.Helper()
	out := &lineBuffer{}
	cmd := s.Command(s.t.Context(), "kubectl", strings.Fields(strings.TrimPrefix(line, "kubectl "))...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(s.t, cmd.Start())
	s.eventually(func(c *assert.CollectT) { assert.Contains(c, out.String(), "Watching") }, "it watches")
	happen()
	s.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, strings.Count(out.String(), "\n"), atLeast, out.String())
	}, "it shows what happens")
	require.NoError(s.t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(s.t, cmd.Wait(), "an interrupted watch is no error: %s", out)
	s.sessions.Add(session, line, out.String()+"^C\n", 0)
}

// output stores the command's output for programs. The command must print nothing for people.
func (s *story) output(file string, args ...string) {
	s.t.Helper()
	s.outputSaying("", file, args...)
}

// outputSaying is like output for a command that prints exactly this text for people.
func (s *story) outputSaying(says, file string, args ...string) {
	s.t.Helper()
	r := s.run(args...)
	require.Equal(s.t, says, r.stderr)
	s.golden(filepath.Join("testdata", file), s.sessions.Normalize(r.stdout))
}

// golden compares output with a golden file.
func (s *story) golden(path, got string) {
	s.t.Helper()
	kubectl.Golden(s.t, path, got, *update)
}

// machine returns the label that a kubelet sets on a node.
func machine(name string) set { return set{"kubernetes.io/hostname": name} }

// of returns the labels of a node in a rack.
func of(name, rack string) set {
	return set{"kubernetes.io/hostname": name, "example.com/team": "blue", "rack": rack}
}
