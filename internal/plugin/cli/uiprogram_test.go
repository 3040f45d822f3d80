package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/version"
)

// TestProgramOfThePageIsCalledByItsOwnName: in a cluster there is no kubectl nodekeeper.
func TestProgramOfThePageIsCalledByItsOwnName(t *testing.T) {
	run := func(args ...string) (code int, stdout, stderr string) {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		code = UIMain(t.Context(), args, streams)
		return code, out.String(), errOut.String()
	}
	code, help, _ := run("--help")
	assert.Zero(t, code)
	assert.Contains(t, help, "Usage:\n  ui [flags]\n")
	assert.Contains(t, help, "  ui --port=8080\n")
	assert.Regexp(t, `--version +print the version and exit\n`, help)
	assert.NotContains(t, help, "kubectl nodekeeper ui")
	assert.NotContains(t, help, "--context")

	code, printed, _ := run("--version")
	assert.Zero(t, code)
	assert.Equal(t, version.Line("ui")+"\n", printed)

	code, _, problem := run("--prot=8080")
	assert.Equal(t, command.CodeUsage, code)
	assert.Contains(t, problem, "did you mean --port?")
	code, _, problem = run("extra")
	assert.Equal(t, command.CodeUsage, code)
	assert.Contains(t, problem, "see ui --help")
	code, _, problem = run("--kubeconfig=/none", "--context=none")
	assert.Equal(t, command.CodeError, code, "the flags of the plugin are known: %s", problem)
}
