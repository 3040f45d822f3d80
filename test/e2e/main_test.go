package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// seed is what the random tests begin with; what they used is in the output of one that fails.
var seed = flag.Int64("e2e.seed", 0, "seed of the random tests; 0 for a new one")

// clusters has the API servers of all tests.
var clusters pool

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if path := foreignKubeconfig(); path != "" {
		if !filepath.IsAbs(path) {
			fmt.Fprintf(os.Stderr, "%s %q: give an absolute path, tests run in the directory of their package\n", kubeconfigEnv, path)
			return 1
		}
		// One after the other: each test is to have the cluster for itself.
		if err := flag.Set("test.parallel", "1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := clusters.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
