package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanupTimeout is for one request of a test that is over. A machine that is busy is no reason to fail.
const cleanupTimeout = time.Minute

// Run is for a package's TestMain: it starts a control plane, passes it to use, runs the tests,
// stops the control plane, and returns the exit code. If the process runs no tests, because it
// lists them or is a fuzzing worker, Run starts no control plane and does not call use.
func Run(m *testing.M, use func(*ControlPlane)) int { return RunWith(m, Options{}, use) }

// RunWith is Run with a control plane of these options.
func RunWith(m *testing.M, o Options, use func(*ControlPlane)) int {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true" {
		return m.Run()
	}
	c, err := Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(c)
	code := m.Run()
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Parallel makes at least n tests of a package run in parallel, unless the command line sets a
// number: most of the time they wait. Call it before the tests run.
func Parallel(n int) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(max(n, runtime.GOMAXPROCS(0))))
}

// Namespace creates a namespace with a generated name and returns the name. It is deleted when the test is over, but
// its contents stay: no controller empties namespaces here.
func Namespace(tb testing.TB, c client.Writer) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(tb, c.Create(tb.Context(), ns), "creating a namespace")
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupTimeout)
		defer cancel()
		assert.NoError(tb, client.IgnoreNotFound(c.Delete(ctx, ns)), "deleting namespace %s", ns.Name)
	})
	return ns.Name
}
