package plugin_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

var (
	// planes has the API servers of all tests that need no fresh one.
	planes controlplane.Pool
	// update has what the tests see taken for right.
	update = flag.Bool("update", false, "rewrite the golden files and the sessions of docs/cli")
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	if err := planes.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
