package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanupTimeout is for one request of a test that is over.
const cleanupTimeout = 5 * time.Second

// Run is what a package's TestMain calls: it starts a control plane, hands it to use, runs the tests, stops the
// control plane, and returns the exit code. A process that runs no tests, because it lists them or is a fuzzing worker,
// gets no control plane, and there is no call of use.
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

// Namespace creates a namespace with a generated name and returns the name. It is deleted when the test is over, but
// what is in it stays: no controller empties namespaces here.
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
