package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
)

// Main runs the tests of a package against one control plane with [APIServerArgs], which it gives to
// use before. It returns the exit code.
func Main(m *testing.M, use func(*controlplane.ControlPlane)) (code int) {
	code, err := run(m, use)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, use func(*controlplane.ControlPlane)) (code int, err error) {
	dir, err := os.MkdirTemp("", "manifests-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args, err := APIServerArgs(dir)
	if err != nil {
		return 1, err
	}
	return controlplane.RunWith(m, controlplane.Options{Dir: dir, APIServerArgs: args}, use), nil
}

// Kubectl runs kubectl against a control plane, and returns its output, which must have no warning.
// It works in functions that t.Cleanup calls, too.
func Kubectl(t *testing.T, plane *controlplane.ControlPlane, args ...string) string {
	t.Helper()
	controlplane.NeedKubectl(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "kubectl", append([]string{"--kubeconfig=" + plane.Kubeconfig}, args...)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Run(), "kubectl %s: %s", strings.Join(args, " "), &output)
	assert.NotContains(t, output.String(), "Warning")
	return output.String()
}
