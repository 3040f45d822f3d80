package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

const (
	// patience is how long a test waits for what must come. A machine that is busy with other things is no reason to fail.
	patience = 3 * time.Minute
	// period is the time between two looks at the cluster.
	period = 20 * time.Millisecond
	// stopTimeout is what a program has to end in: less than the grace period of a pod, and more than a machine stands still.
	stopTimeout = 28 * time.Second
)

// env is what one test has: an API server, two namespaces and the programs that it starts.
type env struct {
	t          *testing.T
	plane      *controlplane.ControlPlane
	client     client.Client
	kubeconfig string
	path       string // $PATH, with the plugin
	// flags are what the plugin is given besides the arguments.
	flags                           []string
	transactions, metadata, members string
	programs                        []*programs.Program
}

// newEnv makes an environment in an API server that the test has for itself while it runs: the programs and many commands see all Nodes.
func newEnv(t *testing.T) *env {
	t.Helper()
	c, err := planes.Take()
	require.NoError(t, err)
	t.Cleanup(func() { planes.Give(c) }) // after the environment has ended
	return newEnvOf(t, c)
}

// ownPlane starts an API server in which nothing has happened yet, which ends with the test.
func ownPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	return c
}

// newEnvOf makes an environment with namespaces of its own in an API server, which ends with the test.
func newEnvOf(t *testing.T, c *controlplane.ControlPlane) *env {
	t.Helper()
	id := "test-" + rand.String(6)
	e := newEnvIn(t, c, id+"-transactions", id+"-metadata", id+"-members")
	e.flags = []string{"--transaction-namespace=" + e.transactions, "--metadata-namespace=" + e.metadata, "--membership-namespace=" + e.members}
	return e
}

func newEnvIn(t *testing.T, c *controlplane.ControlPlane, transactions, metadata, members string) *env {
	t.Helper()
	controlplane.NeedKubectl(t)
	plugin, err := programs.Path("kubectl-nodekeeper")
	require.NoError(t, err)
	e := &env{
		t: t, plane: c, kubeconfig: c.Kubeconfig, transactions: transactions, metadata: metadata, members: members,
		path: filepath.Dir(plugin) + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	e.client, err = client.New(c.Config, client.Options{})
	require.NoError(t, err)
	for _, name := range []string{transactions, metadata, members} {
		require.NoError(t, e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	t.Cleanup(e.end)
	return e
}

// end shows what the programs said if the test has failed, ends them, and removes all nodes, so that the next test finds none.
func (e *env) end() {
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.Kill())
		if e.t.Failed() {
			e.t.Logf("%s said:\n%s", p.Identity, p.Output())
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), patience)
	defer cancel()
	errs = append(errs, e.client.DeleteAllOf(ctx, &corev1.Node{}))
	require.NoError(e.t, errors.Join(errs...), "cleaning up")
}

// become has another user run the commands that follow.
func (e *env) become(user string, groups ...string) {
	e.t.Helper()
	kubeconfig, err := e.plane.KubeconfigFor(user, groups...)
	require.NoError(e.t, err)
	e.kubeconfig = kubeconfig
}

// result is what a command said.
type result struct {
	stdout, stderr string
	code           int
}

// run runs kubectl nodekeeper.
func (e *env) run(args ...string) result {
	e.t.Helper()
	return e.runWith("", args...)
}

// runWith runs kubectl nodekeeper with this standard input.
func (e *env) runWith(stdin string, args ...string) result {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	cmd := e.command(ctx, "kubectl", append(append([]string{"nodekeeper"}, args...), e.flags...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); !isExit {
		require.NoError(e.t, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must runs kubectl nodekeeper, which is to succeed, and returns what it printed.
func (e *env) must(args ...string) string {
	e.t.Helper()
	r := e.run(args...)
	require.Zero(e.t, r.code, "kubectl nodekeeper %s: %s%s", strings.Join(args, " "), r.stdout, r.stderr)
	return r.stdout
}

// fails runs kubectl nodekeeper, which is to fail, and returns what it said of that.
func (e *env) fails(args ...string) string {
	e.t.Helper()
	return e.endsWith(1, args...)
}

// refuses is fails for a command line that is wrong.
func (e *env) refuses(args ...string) string {
	e.t.Helper()
	return e.endsWith(2, args...)
}

func (e *env) endsWith(code int, args ...string) string {
	e.t.Helper()
	r := e.run(args...)
	require.Equal(e.t, code, r.code, "kubectl nodekeeper %s: %s%s", strings.Join(args, " "), r.stdout, r.stderr)
	require.Contains(e.t, r.stderr, "error: ")
	return r.stderr
}

// command is a command in the environment of a person at a shell.
func (e *env) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := name
	if name == "kubectl" {
		var err error
		path, err = exec.LookPath(name)
		require.NoError(e.t, err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+e.path, "KUBECONFIG="+e.kubeconfig, "HOME="+e.t.TempDir(), "TZ=UTC")
	return cmd
}

// shortNameOfOldest returns the name of the oldest transaction of a node, as people write it.
func (e *env) shortNameOfOldest(node string) string {
	e.t.Helper()
	return node + "." + strings.TrimSpace(e.must("pending", node, "-o", "jsonpath={.items[0].version}"))
}

// start starts a watcher or a processor and returns it when it is ready.
func (e *env) start(program string, args ...string) *programs.Program {
	e.t.Helper()
	common := []string{"--transaction-namespace=" + e.transactions, "--metadata-namespace=" + e.metadata, "--membership-namespace=" + e.members}
	if program == "watcher" {
		common = append(common, "-v=1") // which tells what it leaves out, too
	} else {
		common = append(common, "--save-delay=0")
	}
	p, err := programs.Start(program, fmt.Sprintf("%s-%d", program, len(e.programs)+1), e.kubeconfig, append(common, args...)...)
	require.NoError(e.t, err)
	e.programs = append(e.programs, p)
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	require.NoError(e.t, p.WaitReady(ctx))
	return p
}

// stop ends a program as Kubernetes does.
func (e *env) stop(p *programs.Program) {
	e.t.Helper()
	require.NoError(e.t, p.Stop(stopTimeout))
}

// set is labels.
type set = map[string]string

func (e *env) create(name string, of set) {
	e.t.Helper()
	require.NoError(e.t, e.client.Create(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}}))
}

func (e *env) delete(name string) {
	e.t.Helper()
	require.NoError(e.t, e.client.Delete(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// label changes the label rack of a Node, as kubectl label does.
func (e *env) label(name, rack string) {
	e.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"rack":"`+rack+`"}}}`))
	require.NoError(e.t, e.client.Patch(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch))
}

// node returns the labels of a Node without the marker, and the marker.
func (e *env) node(t require.TestingT, name string) (own set, marker string) {
	n := &corev1.Node{}
	require.NoError(t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	return labels.Split(n.Labels)
}

// record returns the record of a node, nil if there is none.
func (e *env) record(t require.TestingT, name string) *record.Record {
	cm := &corev1.ConfigMap{}
	err := e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.metadata, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	r, err := record.Parse(cm)
	require.NoError(t, err)
	if r.Floor {
		return nil
	}
	return r
}

// saved waits until these labels are on record.
func (e *env) saved(name string, want set) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		r := e.record(c, name)
		require.NotNil(c, r)
		assert.Equal(c, want, r.Labels)
	}, "the labels of %s are saved", name)
}

// restored waits until a Node has these labels and the marker of a restore, and all that comes of it is applied.
func (e *env) restored(name string, want set) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		own, marker := e.node(c, name)
		assert.Equal(c, want, own)
		assert.NotContains(c, []string{"", labels.Pending}, marker)
	}, "node %s has its labels", name)
	n := &corev1.Node{}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	e.recorded("updated", n.UID)
}

// remove deletes a Node and waits until that is recorded and applied.
func (e *env) remove(name string) {
	e.t.Helper()
	n := &corev1.Node{}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	e.delete(name)
	e.recorded("deleted", n.UID)
}

// recorded waits until the watchers that run have recorded such an event of an incarnation, or know that it is stored, and it is applied.
func (e *env) recorded(typ string, uid types.UID) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		for _, p := range e.running("watcher") {
			line := slices.IndexFunc(strings.Split(p.Output(), "\n"), func(line string) bool {
				isDone := strings.Contains(line, "Recorded transaction") || strings.Contains(line, "Skipped an event that is already stored")
				return isDone && strings.Contains(line, `"`+typ+`"`) && strings.Contains(line, string(uid))
			})
			assert.GreaterOrEqual(c, line, 0, "%s has recorded that %s was %s", p.Identity, uid, typ)
		}
	}, "the watchers have recorded it")
	if len(e.running("processor")) > 0 {
		e.settled()
	}
}

// running returns the programs of that name that have not ended.
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

// settled waits until nothing is pending. What no watcher has stored yet is not pending, so a test
// first waits for the effect of its last step, or until that is recorded.
func (e *env) settled() {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queued(c)) }, "every queue is empty")
}

// queued returns the names of what is in the transaction namespace.
func (e *env) queued(t require.TestingT) []string {
	var list corev1.ConfigMapList
	require.NoError(t, e.client.List(e.t.Context(), &list, client.InNamespace(e.transactions)))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (e *env) eventually(condition func(c *assert.CollectT), message string, args ...any) {
	e.t.Helper()
	require.EventuallyWithT(e.t, condition, patience, period, append([]any{message}, args...)...)
}
