package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// seed is the seed of the random tests. A failed test prints the seed that it used.
var seed = flag.Int64("e2e.seed", 0, "seed of the random tests; 0 for a new one")

// minParallel is the number of parallel tests even on a small machine: most of the time they wait
// for Leases and delays to expire.
const minParallel = 4

// parallel returns the number of parallel tests.
func parallel() string {
	switch {
	case foreignKubeconfig() != "":
		return "1" // each test uses the whole cluster
	case isGiven("test.parallel"):
		return flag.Lookup("test.parallel").Value.String()
	default:
		return strconv.Itoa(max(minParallel, runtime.GOMAXPROCS(0)))
	}
}

func isGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if path := foreignKubeconfig(); path != "" && !filepath.IsAbs(path) {
		fmt.Fprintf(os.Stderr, "%s %q: give an absolute path, tests run in the directory of their package\n", kubeconfigEnv, path)
		return 1
	}
	if err := flag.Set("test.parallel", parallel()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := planes.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
