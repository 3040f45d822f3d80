package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
)

// planes contains the API servers of all tests.
var planes controlplane.Pool

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "nodekeeper-deploy-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	planes.New = func() (*controlplane.ControlPlane, error) {
		own, err := os.MkdirTemp(dir, "plane-")
		if err != nil {
			return nil, err
		}
		args, err := manifests.APIServerArgs(own)
		if err != nil {
			return nil, err
		}
		return controlplane.Start(controlplane.Options{Dir: own, APIServerArgs: args})
	}
	code = m.Run()
	return code, planes.Stop()
}
