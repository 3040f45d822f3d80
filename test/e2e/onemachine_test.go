package e2e_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

const (
	metricsFlag = "metrics-bind-address"
	probeFlag   = "health-probe-bind-address"
)

// startsProgram matches a command that starts a program in the background of the shell.
var startsProgram = regexp.MustCompile(`^bin/([a-z]+) .*&$`)

// TestPageRunsTheProgramsOnOneMachine types the commands of the page against a cluster, except make
// build, which has built the programs of all tests. Free ports replace that of the page and the
// default ports. A node then keeps its labels.
func TestPageRunsTheProgramsOnOneMachine(t *testing.T) {
	t.Parallel()
	if foreignKubeconfig() != "" {
		t.Skip("it uses the namespaces of an installation")
	}
	e := newEnvWithoutNamespaces(t)
	r := readInstallPage(t)
	typeCommands(t, r.script, e.kubeconfig)
	for _, address := range r.probes {
		e.eventually(func(c *assert.CollectT) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
			require.NoError(c, err)
			answer, err := http.DefaultClient.Do(request)
			require.NoError(c, err)
			require.NoError(c, answer.Body.Close())
			assert.Equal(c, http.StatusOK, answer.StatusCode)
		}, "the program that serves probes on %s is ready", address)
	}
	const name = "node-1"
	e.create(name, labelSet{"rack": "r7"})
	e.set(name, "team", "blue")
	e.delete(name)
	e.create(name, nil)
	e.restored(name, labelSet{"rack": "r7", "team": "blue"})
}

// newEnvWithoutNamespaces creates an environment in an API server of its own, for programs that use
// their default namespaces.
func newEnvWithoutNamespaces(t *testing.T) *env {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	e := &env{cluster: &cluster{kubeconfig: plane.Kubeconfig, plane: plane}, t: t, nodes: map[string]bool{}}
	require.NoError(t, e.connect())
	return e
}

// onePage holds the commands of docs/how-to/install.md for running the programs on one machine.
type onePage struct {
	script string
	// probes holds the addresses of each program's probes.
	probes []string
	// free maps each address of the page and of the defaults to a free address. Programs whose
	// addresses collide also collide in the test.
	free map[string]string
}

func readInstallPage(t *testing.T) *onePage {
	t.Helper()
	page, err := pages.Read("docs/how-to/install.md")
	require.NoError(t, err)
	blocks, _ := pages.Parse(pages.Section(page.Content, "Run the programs on your machine"))
	require.Len(t, blocks, 1)
	steps := blocks[0].Steps()
	require.Len(t, steps, 3)
	require.Equal(t, "make build", steps[0].Script)
	r := &onePage{free: map[string]string{}}
	for _, step := range steps[1:] {
		found := startsProgram.FindStringSubmatch(step.Script)
		require.NotNil(t, found, step.Script)
		flags, err := programs.Flags(t.Context(), found[1])
		require.NoError(t, err)
		script, _ := r.withFree(t, step.Script, flags[metricsFlag])
		script, probe := r.withFree(t, script, flags[probeFlag])
		r.script += script + "\n"
		r.probes = append(r.probes, probe)
	}
	return r
}

// withFree replaces the value of an address flag in a command, or the flag's default, with a free
// address.
func (r *onePage) withFree(t *testing.T, script string, flag programs.Flag) (replaced, address string) {
	t.Helper()
	documented := regexp.MustCompile(` --` + flag.Name + ` (\S+)`)
	wanted := flag.DefaultValue()
	if found := documented.FindStringSubmatch(script); found != nil {
		wanted = found[1]
	}
	require.Regexp(t, `^:\d+$`, wanted)
	if r.free[wanted] == "" {
		var err error
		r.free[wanted], err = ports.Address()
		require.NoError(t, err)
	}
	script = strings.TrimSuffix(documented.ReplaceAllString(script, ""), "&")
	return script + "--" + flag.Name + " " + r.free[wanted] + " &", r.free[wanted]
}

// typeCommands types commands into a shell in which bin/ contains the programs, as a user of the
// kubeconfig's cluster. The programs end with the test, whether it passes or fails.
func typeCommands(t *testing.T, script, kubeconfig string) {
	t.Helper()
	home, dir := t.TempDir(), t.TempDir()
	content, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(home, ".kube"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".kube", "config"), content, 0o600))
	watcher, err := programs.Path("watcher")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(filepath.Dir(watcher), filepath.Join(dir, "bin")))

	shell := pages.NewShell(t, dir, "HOME="+home)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopTimeout)
		defer cancel()
		_, err := shell.Run(ctx, "kill $(jobs -p); wait")
		assert.NoError(t, err)
		printed, err := shell.Printed()
		assert.NoError(t, err)
		assert.NotContains(t, printed, "WARNING: DATA RACE")
		if t.Failed() {
			t.Logf("typed:\n%s\nwhat came:\n%s", script, printed)
		}
	})
	_, err = shell.Run(t.Context(), script)
	require.NoError(t, err)
}
