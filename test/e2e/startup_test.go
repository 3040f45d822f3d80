package e2e_test

import (
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// badStart is a start that cannot succeed.
type badStart struct {
	kubeconfig string // "" for the cluster's own
	args       []string
	// want is part of the single line that reports the reason and the remedy.
	want string
}

//nolint:tparallel // its parts share the cluster, one after the other
func TestProgramsThatCannotStartReportWhy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, program := range []string{"watcher", "processor"} {
		starts := e.badStarts()
		maps.Copy(starts, badFlags(program))
		for name, tc := range starts {
			t.Run(program+" "+name, func(t *testing.T) {
				line := e.failsToStart(t, program, tc)
				assert.Contains(t, line, tc.want)
			})
		}
	}
}

//nolint:tparallel // its parts share the cluster, one after the other
func TestWebhookThatCannotStartReportsWhy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.webhooks()
	absent := e.prefix + "absent"
	for name, tc := range map[string]badStart{
		"without its Secret":             {args: []string{"--certificate-secret=" + absent}, want: "run kubectl create secret generic " + absent + " -n " + w.Namespace},
		"without another's Secret":       {args: []string{"--certificate-secret=" + absent, "--rotate-certificate=false"}, want: "check the Certificate of cert-manager"},
		"for a Service without requests": {args: []string{"--service=other"}, want: "does not send requests to Service " + w.Namespace + "/other: correct its clientConfig.service"},
		"without a port":                 {args: []string{"--webhook-bind-address=:0"}, want: "give a port from 1 to 65535"},
		"with an unreadable pattern":     {args: []string{"--hold-back=a*b"}, want: "--hold-back: "},
		"with a pattern of the queue":    {args: []string{"--hold-back=annotation:a"}, want: "has a colon"},
		"with an empty name":             {args: []string{"--webhook-configuration="}, want: "--webhook-configuration is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.args = append(w.Flags(), tc.args...)
			assert.Contains(t, e.failsToStart(t, "webhook", tc), tc.want)
		})
	}
}

//nolint:tparallel // its parts share the cluster, one after the other
func TestProgramsReportTheirMissingPermissions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createNamespaces()
	onlySee := e.kubeconfigOf(rights{"": {e.seeNamespaces()}})
	for program, wants := range map[string][]string{
		"watcher": {"may not get nodes, nor list nodes, nor watch nodes", "create configmaps in namespace " + e.transactions, "Role"},
		"processor": {
			"may not get nodes, nor list nodes, nor patch nodes", "delete configmaps in namespace " + e.transactions,
			"create leases.coordination.k8s.io in namespace " + e.transactions, "update configmaps in namespace " + e.metadata, "Role",
		},
	} {
		t.Run(program, func(t *testing.T) {
			line := e.failsToStart(t, program, badStart{kubeconfig: onlySee})
			for _, want := range wants {
				assert.Contains(t, line, want)
			}
		})
	}
}

// badStarts returns the starts that fail in every program.
func (e *env) badStarts() map[string]badStart {
	e.t.Helper()
	busy, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(e.t, err)
	e.t.Cleanup(func() { assert.NoError(e.t, busy.Close()) })
	address := busy.Addr().String()
	unreachable := e.kubeconfigWith(func(cfg *clientcmdapi.Config) {
		for _, cluster := range cfg.Clusters {
			cluster.Server = "https://" + freeAddress(e.t)
		}
	})
	mayNotCreate := e.kubeconfigOf(rights{"": {rule("", "namespaces", "get")}})
	return map[string]badStart{
		"with an unknown flag":       {args: []string{"--nonsense"}, want: "-nonsense"},
		"with an argument":           {args: []string{"extra"}, want: `unexpected argument "extra"`},
		"with a level that is none":  {args: []string{"-v=x"}, want: `invalid value "x"`},
		"with a negative level":      {args: []string{"-v=-1"}, want: "-v -1"},
		"with one namespace":         {args: []string{"--metadata-namespace=" + e.transactions}, want: "give two different ones"},
		"with no namespace name":     {args: []string{"--metadata-namespace=A_B"}, want: `--metadata-namespace "A_B"`},
		"with an unusable identity":  {args: []string{"--identity=A_B"}, want: `--identity "A_B"`},
		"without its kubeconfig":     {kubeconfig: filepath.Join(e.t.TempDir(), "missing"), want: "reading the kubeconfig"},
		"without an API server":      {kubeconfig: unreachable, want: "cannot reach the API server at https://127.0.0.1"},
		"without any right":          {kubeconfig: e.kubeconfigOf(nil), want: "may not get namespaces, nor get nodes"},
		"without its namespaces":     {kubeconfig: mayNotCreate, args: []string{"--transaction-namespace=" + e.name("absent")}, want: "kubectl create namespace " + e.name("absent")},
		"on a busy metrics address":  {args: []string{"--metrics-bind-address=" + address}, want: "address already in use"},
		"on a busy probe address":    {args: []string{"--health-probe-bind-address=" + address}, want: "address already in use"},
		"on an address that is none": {args: []string{"--health-probe-bind-address=nowhere"}, want: "nowhere"},
	}
}

// badFlags returns the invalid values of the flags that only this program has.
func badFlags(program string) map[string]badStart {
	return map[string]map[string]badStart{
		"watcher": {
			"with a switch that is none":    {args: []string{"--record-updates=maybe"}, want: `"maybe"`},
			"with a negative silence":       {args: []string{"--silence=-1s"}, want: "--silence -1s"},
			"with a flag of the processors": {args: []string{"--workers=3"}, want: "-workers"},
		},
		"processor": {
			"without workers":             {args: []string{"--workers=0"}, want: "--workers 0"},
			"with an unknown mode":        {args: []string{"--restore-mode=x"}, want: `"x"`},
			"with an unreadable pattern":  {args: []string{"--live-labels=a*b"}, want: `"a*b"`},
			"with an unknown protection":  {args: []string{"--protect=always"}, want: `use "none" or "finalizer"`},
			"with a negative retention":   {args: []string{"--retention=-1s"}, want: "--retention -1s"},
			"with a retention in no unit": {args: []string{"--retention=5"}, want: `"5"`},
		},
	}[program]
}

// failsToStart starts a program, waits until it exits, and returns its last line.
func (e *env) failsToStart(t *testing.T, program string, tc badStart) string {
	t.Helper()
	kubeconfig := tc.kubeconfig
	if kubeconfig == "" {
		kubeconfig = e.kubeconfig
	}
	p := e.start(program, kubeconfig, tc.args...)
	select {
	case <-p.Done():
	case <-time.After(patience):
		require.Fail(t, "it did not end", p.Output())
	}

	assert.Equal(t, 1, p.ExitCode())
	assert.NotContains(t, p.Output(), "goroutine ", "a stack trace")
	lines := strings.Split(strings.TrimSuffix(p.Output(), "\n"), "\n")
	last := lines[len(lines)-1]
	assert.True(t, strings.HasPrefix(last, program+": "), "last line: %s", last)
	for _, line := range lines[:len(lines)-1] {
		assert.True(t, strings.HasPrefix(line, "{"), "a line that is no log: %s", line)
	}
	return last
}
