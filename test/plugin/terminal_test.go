package plugin_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestColorsAreForTerminals runs diff in a terminal created by script(1).
func TestColorsAreForTerminals(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("there is no script on this machine, which makes a terminal")
	}
	e := newEnv(t)
	e.start("processor")
	e.create("node-1", set{"rack": "r1"})
	e.must("save", "node-1")
	e.label("node-1", "r2")
	line := "kubectl nodekeeper diff node-1 --transaction-namespace=" + e.transactions + " --metadata-namespace=" + e.metadata
	inTerminal := func(env ...string) string {
		cmd := e.Command(t.Context(), "/usr/bin/env", "script", "-qec", line, "/dev/null")
		cmd.Env = append(append(cmd.Env, "TERM=xterm"), env...)
		out, err := cmd.Output()
		exit := &exec.ExitError{}
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, 1, exit.ExitCode(), "they differ: %s", out)
		return string(out)
	}
	assert.Contains(t, inTerminal(), "\x1b[31m-rack=r1\x1b[0m\r\n\x1b[32m+rack=r2\x1b[0m")
	assert.Contains(t, inTerminal("NO_COLOR=1"), "-rack=r1\r\n+rack=r2")
	assert.Contains(t, e.run("diff", "node-1").stdout, "-rack=r1\n+rack=r2")
}
