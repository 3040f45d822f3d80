package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/programs"
)

const (
	// patience bounds the wait for an expected state. It is long, so that tests pass on a busy
	// machine.
	patience = 3 * time.Minute
	// period is the polling interval.
	period = 100 * time.Millisecond
	// stopTimeout bounds the shutdown of a program. It is shorter than the grace period of a pod,
	// and longer than the machine may stall.
	stopTimeout = 28 * time.Second
	// shownLines is the number of output lines of each program that a failed test shows.
	shownLines = 400
)

// env is the environment of one test: a cluster, two namespaces and the programs that the test
// starts. Only the goroutine of the test may use it, except where documented otherwise.
type env struct {
	*cluster

	t *testing.T
	// prefix begins the names of the test's nodes, so that no two tests share a node.
	prefix string
	// transactions, metadata and members are the namespaces. The programs create them.
	transactions, metadata, members string
	programs                        []*programs.Program
	nodes                           map[string]bool // all nodes that have ever existed
	// asked reports that the API server calls a webhook for the nodes of the test, which answers
	// from the records.
	asked bool
}

// newEnv creates an environment, which ends with the test.
func newEnv(t *testing.T) *env {
	t.Helper()
	c, err := takeCluster()
	require.NoError(t, err)
	id := "e2e-" + rand.String(6)
	e := &env{
		cluster: c, t: t, prefix: id + "-", nodes: map[string]bool{},
		transactions: id + "-transactions", metadata: id + "-metadata", members: id + "-members",
	}
	t.Cleanup(e.end)
	return e
}

// end stops the programs, shows their output if the test has failed, and removes everything the
// test created.
func (e *env) end() {
	for _, p := range e.programs {
		assert.NotContains(e.t, p.Output(), "WARNING: DATA RACE", "%s is built with the race detector, which found one", p.Identity)
	}
	if e.t.Failed() {
		e.showPrograms()
	}
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.Kill())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), patience)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(e.nodes)) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		errs = append(errs, client.IgnoreNotFound(e.client.Delete(ctx, node)))
	}
	for _, name := range []string{e.transactions, e.metadata, e.members} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		errs = append(errs, client.IgnoreNotFound(e.client.Delete(ctx, namespace)))
	}
	e.give()
	require.NoError(e.t, errors.Join(errs...), "cleaning up")
}

func (e *env) showPrograms() {
	for _, p := range e.programs {
		lines := strings.Split(p.Output(), "\n")
		e.t.Logf("%s (process %d) said in its last %d lines:\n%s", p.Identity, p.PID(), shownLines,
			strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
	}
}

// name returns a node name that no other test has.
func (e *env) name(suffix string) string { return e.prefix + suffix }

// names returns n node names that no other test has.
func (e *env) names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = e.name(fmt.Sprintf("node-%d", i))
	}
	return names
}

// watcher starts a watcher and returns it when it is ready.
func (e *env) watcher(args ...string) *programs.Program {
	e.t.Helper()
	p := e.start("watcher", e.kubeconfig, args...)
	e.ready(p)
	return p
}

// processor starts a processor and returns it when it is ready. Unless the args set a delay, it
// saves at once, because most tests wait for that.
func (e *env) processor(args ...string) *programs.Program {
	e.t.Helper()
	p := e.start("processor", e.kubeconfig, append([]string{"--save-delay=0"}, args...)...)
	e.ready(p)
	return p
}

// start starts a program in the namespaces of the test.
func (e *env) start(program, kubeconfig string, args ...string) *programs.Program {
	e.t.Helper()
	identity := fmt.Sprintf("%s%s-%d", e.prefix, program, len(e.programs))
	p, err := programs.Start(program, identity, kubeconfig, append([]string{
		"--transaction-namespace=" + e.transactions,
		"--metadata-namespace=" + e.metadata,
		"--membership-namespace=" + e.members,
	}, args...)...)
	require.NoError(e.t, err)
	e.programs = append(e.programs, p)
	return p
}

func (e *env) ready(p *programs.Program) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	require.NoError(e.t, p.WaitReady(ctx))
}

// stop terminates a program as Kubernetes does.
func (e *env) stop(p *programs.Program) {
	e.t.Helper()
	require.NoError(e.t, p.Stop(stopTimeout))
	require.Equal(e.t, 0, p.ExitCode(), "exit code of %s", p.Identity)
}

// running returns the programs with that name that have not ended.
func (e *env) running(program string) []*programs.Program {
	return slices.DeleteFunc(slices.Clone(e.programs), func(p *programs.Program) bool {
		select {
		case <-p.Done():
			return true
		default:
			return p.Name != program
		}
	})
}

// eventually waits until the condition holds. The condition must use its c.
func (e *env) eventually(condition func(c *assert.CollectT), message string, args ...any) {
	e.t.Helper()
	require.EventuallyWithT(e.t, condition, patience, period, append([]any{message}, args...)...)
}

// settle stops the watchers, which store everything they have seen before they exit. It then waits
// until the processors have emptied the queue of every node and released the locks. From then on
// nothing is written, so the state that a test finds is final. A watcher that is stopped may not
// have seen the last step of a test: a test that needs the effect of that step waits for it first.
func (e *env) settle() {
	e.t.Helper()
	for _, w := range e.running("watcher") {
		e.stop(w)
	}
	e.eventually(func(c *assert.CollectT) {
		assert.Empty(c, e.queued(c), "transactions")
		assert.Empty(c, e.locks(c), "locks")
	}, "every queue is empty and no node is locked")
}
