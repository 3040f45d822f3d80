package deploy_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

// auditPolicy has the API server note who does what to which object, once for each request.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

var (
	api *controlplane.ControlPlane
	// auditLog is the path of what the API server has noted.
	auditLog string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "nodekeeper-deploy-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return 1, err
	}
	auditLog = filepath.Join(dir, "audit.log")
	api, err = controlplane.Start(controlplane.Options{Dir: dir, APIServerArgs: map[string][]string{
		"audit-policy-file": {policy},
		"audit-log-path":    {auditLog},
	}})
	if err != nil {
		return 1, err
	}
	code = m.Run()
	return code, api.Stop()
}
