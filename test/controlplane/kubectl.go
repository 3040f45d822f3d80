package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// NeedKubectl fails the test if there is no kubectl. If $PATH has none, this appends the directory of the control plane, which has
// one, too.
func NeedKubectl(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, findKubectl())
}

func findKubectl() error {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return nil
	}
	dir, err := Assets()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(filepath.Join(dir, "kubectl")); err != nil {
		return fmt.Errorf("looking for kubectl in $PATH and with the control plane (in %s if set): %w: run \"make controlplane\"", assetsEnv, err)
	}
	return os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+dir)
}
