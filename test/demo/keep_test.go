package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
	"nodekeeper.dev/test/story"
)

const (
	// demoEnv makes the test binary the demo.
	demoEnv = "NODEKEEPER_DEMO_TEST"
	// demoPatience is more than a demo may take with its start, on a machine that is busy.
	demoPatience = 13 * time.Minute
	lookPeriod   = 100 * time.Millisecond
	// watched is the file for what a watch prints.
	watched = "watched"
	// lastLine is what the demo prints last before it waits.
	lastLine = "  kubectl nodekeeper ui"
)

func TestMain(m *testing.M) {
	if os.Getenv(demoEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// untilItWaits fails, with the output of the demo, if that ends by itself.
const untilItWaits = `waits() { grep -q "^` + lastLine + `$" "$PRINTED"; }
until waits; do kill -0 $! || break; sleep 0.1; done
waits || { cat "$PRINTED"; false; }`

// lookAround has what the commands print with which people look around. Those that have --watch go
// on, and what they print goes to a file.
var lookAround = map[string]string{
	"kubectl get nodes --show-labels":                  worker1,
	"kubectl get cm -n node-metadata":                  worker1,
	"kubectl get cm -n node-metadata worker-1 -o yaml": "kind: ConfigMap",
	"kubectl get node worker-1 --show-labels":          "colour=blue", // which the commands before it have set on a node that is gone
	"kubectl nodekeeper status":                        "2 of 2 watchers alive",
	"kubectl nodekeeper explain worker-1":              "it got the labels of version",
	"cat " + watched:                                   worker1,
}

// TestKeepShowsHowToLookAround types the commands that the demo prints at its end, while everything
// keeps running.
func TestKeepShowsHowToLookAround(t *testing.T) {
	controlplane.NeedKubectl(t)
	demo, err := os.Executable()
	require.NoError(t, err)
	root, err := repository.Root()
	require.NoError(t, err)
	printed := filepath.Join(t.TempDir(), "printed")
	first := &terminal{t, pages.NewShell(t, root, demoEnv+"=1", "DEMO="+demo, "PRINTED="+printed)}
	first.types(`"$DEMO" -keep >"$PRINTED" 2>&1 &`)
	first.types(untilItWaits)
	commands := readGuide(t, printed)
	others := slices.IndexFunc(commands, func(command string) bool { return !strings.HasPrefix(command, "export ") })
	begin := len(commands) - 3
	second := &terminal{t, pages.NewShell(t, t.TempDir(), "PATH=/usr/bin:/bin")}                         // a kubectl comes with the control plane
	for _, command := range slices.Concat(commands[:others], commands[begin:], commands[others:begin]) { // the last lines are those to begin with
		second.follows(command)
	}
	second.follows("cat " + watched)
	servers, pids := processes(t, commands)

	first.types("kill -INT $!; wait $!") // as Ctrl-C does; it fails if the demo does
	content, err := os.ReadFile(printed)
	require.NoError(t, err)
	_, events, _ := strings.Cut(string(content), "\n"+lastLine+"\n")
	assert.Contains(t, events, worker1, "the demo shows what the commands change")
	assert.Contains(t, events, "Shutting down ...")
	assert.NoDirExists(t, servers)
	for _, pid := range pids {
		assert.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0), "process %d goes on", pid)
	}
}

// TestMakeKeepsTheDemoRunning: only make knows what KEEP=1 does.
func TestMakeKeepsTheDemoRunning(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	planned, err := pages.NewShell(t, root).Run(t.Context(), "make -n demo KEEP=1")
	require.NoError(t, err)
	assert.Regexp(t, `go run ./test/demo -keep\n$`, planned)
}

// terminal runs typed commands. None may fail.
type terminal struct {
	t     *testing.T
	shell *pages.Shell
}

func (s *terminal) types(command string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), demoPatience)
	defer cancel()
	out, err := s.shell.Run(ctx, command)
	require.NoError(s.t, err, out)
}

// follows types a command of the guide. One that looks is repeated until it shows what it should.
func (s *terminal) follows(command string) {
	s.t.Helper()
	looks := strings.HasPrefix(command, "kubectl get ") || strings.HasPrefix(command, "cat ") || lookAround[command] != ""
	switch {
	case command == "kubectl nodekeeper ui":
		s.types(command + " >page & page=$!; until grep -q 'The page is at http://127.0.0.1' page; do kill -0 $page; sleep 0.1; done; kill -INT $page; wait $page")
	case looks && strings.HasSuffix(command, " --watch"):
		s.types(command + " >>" + watched + " &")
	case looks:
		want := lookAround[command]
		require.NotEmpty(s.t, want, "no expected output: %s", command)
		require.EventuallyWithT(s.t, func(c *assert.CollectT) {
			out, err := s.shell.Run(s.t.Context(), command)
			assert.NoError(c, err)
			assert.Contains(c, out, want)
		}, demoPatience, lookPeriod, command)
	default:
		s.types(command)
	}
}

// readGuide returns the commands that a demo has printed which waits.
func readGuide(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(content), story.KeepHeading)
	guide, _, found := strings.Cut(after, "\n"+lastLine+"\n")
	require.True(t, found, after)
	var commands []string
	for line := range strings.Lines(guide + "\n" + lastLine) {
		if command, indented := strings.CutPrefix(line, "  "); indented {
			step := pages.Step{Script: command}
			commands = append(commands, step.Command())
		}
	}
	for command := range lookAround {
		if command != "cat "+watched {
			assert.Contains(t, commands, command)
		}
	}
	assert.Equal(t, []string{"kubectl nodekeeper status", "kubectl nodekeeper explain worker-1", strings.TrimSpace(lastLine)}, commands[len(commands)-3:], "the last lines")
	return commands
}

// processes returns the directory of the API server, and the process ids of its servers, and of the
// programs that the guide names.
func processes(t *testing.T, commands []string) (dir string, pids []int) {
	t.Helper()
	kill, kubeconfig := regexp.MustCompile(`^kill -9 (\d+)$`), regexp.MustCompile(`^export KUBECONFIG=(.*)/kubeconfig$`)
	var written []string
	for _, command := range commands {
		if found := kill.FindStringSubmatch(command); found != nil {
			written = append(written, found[1])
		}
		if found := kubeconfig.FindStringSubmatch(command); found != nil {
			dir = found[1]
		}
	}
	require.Len(t, written, 4, "the programs")
	require.NotEmpty(t, dir)
	for _, server := range []string{"etcd", "kube-apiserver"} {
		content, err := os.ReadFile(filepath.Join(dir, server+".pid"))
		require.NoError(t, err)
		written = append(written, strings.TrimSpace(string(content)))
	}
	for _, one := range written {
		pid, err := strconv.Atoi(one)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return dir, pids
}
