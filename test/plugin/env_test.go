package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/kubectl"
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
)

// env is the environment of one test: an API server, two namespaces and the programs that the test
// starts.
type env struct {
	*kubectl.User

	t      *testing.T
	plane  *controlplane.ControlPlane
	client client.Client

	transactions, metadata, members string
	programs                        []*programs.Program
}

// newEnv creates an environment in an API server that the test uses exclusively while it runs: the
// programs and many commands see all Nodes.
func newEnv(t *testing.T) *env {
	t.Helper()
	c, err := planes.Take()
	require.NoError(t, err)
	var e *env
	t.Cleanup(func() { // after the environment has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, e.client.DeleteAllOf(ctx, &corev1.Node{}), "removing all nodes, so that the next test finds none")
		planes.Give(c)
	})
	e = newEnvOf(t, c)
	return e
}

// ownPlane starts a fresh API server, which ends with the test.
func ownPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	c, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	return c
}

// newEnvOf creates an environment with namespaces of its own in an API server, which ends with the
// test.
func newEnvOf(t *testing.T, c *controlplane.ControlPlane) *env {
	t.Helper()
	id := "test-" + rand.String(6)
	e := newEnvIn(t, c, id+"-transactions", id+"-metadata", id+"-members")
	e.Flags = []string{"--transaction-namespace=" + e.transactions, "--metadata-namespace=" + e.metadata, "--membership-namespace=" + e.members}
	return e
}

func newEnvIn(t *testing.T, c *controlplane.ControlPlane, transactions, metadata, members string) *env {
	t.Helper()
	e := &env{User: kubectl.NewUser(t, "nodekeeper", c.Kubeconfig), t: t, plane: c, transactions: transactions, metadata: metadata, members: members}
	var err error
	e.client, err = client.New(c.Config, client.Options{})
	require.NoError(t, err)
	for _, name := range []string{transactions, metadata, members} {
		require.NoError(t, e.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	t.Cleanup(e.end)
	return e
}

// end stops the programs, and logs their output if the test has failed.
func (e *env) end() {
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.Kill())
		if e.t.Failed() {
			e.t.Logf("%s said:\n%s", p.Identity, p.Output())
		}
	}
	require.NoError(e.t, errors.Join(errs...), "ending the programs")
}

// become runs the following commands as another user.
func (e *env) become(user string, groups ...string) {
	e.t.Helper()
	kubeconfig, err := e.plane.KubeconfigFor(user, groups...)
	require.NoError(e.t, err)
	e.Kubeconfig = kubeconfig
}

// result is the result of a command.
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
	r := e.Run(stdin, args...)
	return result{r.Stdout, r.Stderr, r.Code}
}

// must runs kubectl nodekeeper, which must succeed, and returns its output.
func (e *env) must(args ...string) string {
	e.t.Helper()
	return e.Must(args...)
}

// fails runs kubectl nodekeeper, which must fail, and returns its message.
func (e *env) fails(args ...string) string {
	e.t.Helper()
	return e.Fails(1, args...)
}

// refuses is fails for an invalid command line.
func (e *env) refuses(args ...string) string {
	e.t.Helper()
	return e.Fails(2, args...)
}

// shortNameOfOldest returns the name of a node's oldest transaction, in the form that users type.
func (e *env) shortNameOfOldest(node string) string {
	e.t.Helper()
	return node + "." + strings.TrimSpace(e.must("pending", node, "-o", "jsonpath={.items[0].version}"))
}

// start starts a watcher or a processor and returns it when it is ready.
func (e *env) start(program string, args ...string) *programs.Program {
	e.t.Helper()
	common := []string{"--transaction-namespace=" + e.transactions, "--metadata-namespace=" + e.metadata, "--membership-namespace=" + e.members}
	if program == "watcher" {
		common = append(common, "-v=1") // which also logs skipped work
	} else {
		common = append(common, "--save-delay=0")
	}
	p, err := programs.Start(program, fmt.Sprintf("%s-%d", program, len(e.programs)+1), e.Kubeconfig, append(common, args...)...)
	require.NoError(e.t, err)
	e.programs = append(e.programs, p)
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	require.NoError(e.t, p.WaitReady(ctx))
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.isMember(c, p.Identity)) }, "%s is a member", p.Identity) // a processor is ready before
	return p
}

// stop terminates a program as Kubernetes does, and waits until the others know.
func (e *env) stop(p *programs.Program) {
	e.t.Helper()
	require.NoError(e.t, p.Stop(stopTimeout))
	e.eventually(func(c *assert.CollectT) { assert.False(c, e.isMember(c, p.Identity)) }, "%s is no member", p.Identity) // on a busy machine it gives up the release of its Lease
}

// isMember reports whether a replica holds its Lease.
func (e *env) isMember(t require.TestingT, identity string) bool {
	l := &coordinationv1.Lease{}
	err := e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.members, Name: identity}, l)
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == identity &&
		time.Since(l.Spec.RenewTime.Time) < time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second
}

// set is a set of labels.
type set = map[string]string

func (e *env) create(name string, of set) {
	e.t.Helper()
	require.NoError(e.t, e.client.Create(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}}))
}

func (e *env) delete(name string) {
	e.t.Helper()
	require.NoError(e.t, e.client.Delete(e.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// label changes the label rack of a Node, like kubectl label.
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

// saved waits until the record has these labels.
func (e *env) saved(name string, want set) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		r := e.record(c, name)
		require.NotNil(c, r)
		assert.Equal(c, want, r.Labels)
	}, "the labels of %s are saved", name)
}

// restored waits until a Node has these labels and the marker of a restore, and all resulting
// transactions are applied.
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

// remove deletes a Node and waits until the deletion is recorded and applied.
func (e *env) remove(name string) {
	e.t.Helper()
	n := &corev1.Node{}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	e.delete(name)
	e.recorded("deleted", n.UID)
}

// recorded waits until the running watchers have recorded such an event of an incarnation, or know
// that it is stored, and it is applied.
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

// settled waits until no transactions are pending. Events that no watcher has stored yet are not
// pending, so a test first waits for the effect of its last step, or until that step is recorded.
func (e *env) settled() {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queued(c)) }, "every queue is empty")
}

// queued returns the names of the objects in the transaction namespace.
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
