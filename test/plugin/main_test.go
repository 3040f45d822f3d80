package plugin_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

var (
	// planes holds the API servers of all tests that do not need a fresh one.
	planes controlplane.Pool
	// update accepts the current output as correct.
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
