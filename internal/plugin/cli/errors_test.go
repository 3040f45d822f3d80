package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// kubeconfig selects a cluster that does not answer: nothing listens on port 1.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: gone
contexts: [{name: gone, context: {cluster: gone}}]
clusters: [{name: gone, cluster: {server: "http://127.0.0.1:1"}}]
`

// TestExitCodes: an invalid command line is reported before any request, even if the cluster does
// not answer.
func TestExitCodes(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte(kubeconfig), 0o600))
	for line, want := range map[string]int{
		"":                                0,
		"--help":                          0,
		"list --help":                     0,
		"nothing":                         2,
		"list --nothing":                  2,
		"list node-1":                     2,
		"list --selector=a=b=c":           2,
		"list --sort-by=nothing":          2,
		"list --state=nothing":            2,
		"list -o nothing":                 2,
		"list -o jsonpath={.":             2,
		"list":                            1,
		"list -o name":                    1,
		"list -o jsonpath={.items}":       1,
		"show":                            2,
		"show Node_1":                     2,
		"show node-1 --restore-mode=soon": 2,
		"show node-1 --live-labels=a*b":   2,
		"show node-1":                     1,
		"diff":                            2,
		"pending a b":                     2,
		"pending --watch -o json":         2,
		"status -o nothing":               2,
		"status --stuck-after=soon":       2,
		"save":                            2,
		"save node-1 --all":               2,
		"save node-1 --dry-run=soon":      2,
		"save node-1":                     1,
		"set":                             2,
		"set node-1 a=b=c":                2,
		"set node-1 a=b":                  1,
		"forget --yes":                    2,
		"prune":                           2,
		"prune --older-than=soon":         2,
		"prune --older-than=1d":           1,
		"import":                          2,
		"import /nothing":                 1,
		"retry":                           2,
		"discard":                         2,
		"export --metadata-namespace=a --transaction-namespace=a": 2,
	} {
		var out, errs bytes.Buffer
		args := append(strings.Fields(line), "--kubeconfig="+config)
		if line == "" {
			args = nil
		}
		code := Main(t.Context(), args, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
		assert.Equal(t, want, code, "%s: %s", line, &errs)
		assert.Equal(t, want != 0, strings.HasPrefix(errs.String(), "error: "), "%s: %s", line, &errs)
	}
	var out, errs bytes.Buffer
	code := Main(t.Context(), []string{"status", "--kubeconfig=" + config}, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
	assert.Equal(t, 1, code, "the state is unknown")
	assert.Regexp(t, `^Status: +unwell: the state of nodekeeper is unknown: `, out.String())
	assert.Empty(t, errs.String())
}
