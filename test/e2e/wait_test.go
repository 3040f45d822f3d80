package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestProgramsWaitForTheirCluster applies the objects one by one, as when manifests are applied
// gradually.
func TestProgramsWaitForTheirCluster(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	user := e.prefix + "early"
	started := map[string]*programs.Program{}
	for _, program := range []string{"watcher", "processor"} {
		started[program] = e.start(program, e.kubeconfigAs(user), "--wait-for-cluster")
	}
	missing := func(reason string) {
		for _, p := range started {
			e.answers(p, "/readyz", http.StatusInternalServerError, "[-]cluster: "+reason)
			e.answers(p, "/healthz", http.StatusOK, "[+]")
		}
	}
	missing("this identity may not get namespaces, nor get nodes")
	e.createNamespaces()
	e.grant(user, rights{"": {e.seeNamespaces()}})
	missing("this identity may not get nodes")
	e.grant(user, e.leastRights("watcher"))
	e.grant(user, e.leastRights("processor"))

	for _, p := range started {
		e.ready(p)
		reasons := map[string]int{} // more than two if it checks while rights are granted
		for _, line := range loggedMessages(p, "Preflight checks failed, retrying") {
			delete(line, "time")
			reasons[fmt.Sprint(line)]++
		}
		assert.GreaterOrEqual(t, len(reasons), 2)
		for reason, lines := range reasons {
			assert.Equal(t, 1, lines, reason)
		}
	}
	e.answers(started["watcher"], "/healthz", http.StatusOK, "[+]recording: ok")
	e.answers(started["processor"], "/readyz", http.StatusOK, "[+]node-controller: ok\n")
	name, want := e.name("node"), labelSet{"rack": "r7"}
	e.create(name, want)
	e.saved(name, want)
	e.delete(name)
	e.create(name, nil)
	e.restored(name, want)
	e.settle()
}

func TestProgramThatWaitsEndsOnASignal(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor", e.kubeconfigAs(e.prefix+"nobody"), "--wait-for-cluster")
	e.answers(p, "/readyz", http.StatusInternalServerError, "this identity may not get namespaces")
	e.stop(p)
}

// answers waits until a probe of a program answers with this status and text.
func (e *env) answers(p *programs.Program, path string, status int, text string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		got, body, err := p.Probe(e.t.Context(), path)
		require.NoError(c, err)
		assert.Equal(c, status, got)
		assert.Contains(c, body, text)
	}, "%s answers %s with %d", p.Identity, path, status)
}
