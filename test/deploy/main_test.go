package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
)

// limitedPriority makes the API server admit critical pods only where a quota allows them, as GKE
// does.
const limitedPriority = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{
	"name": "ResourceQuota", "configuration": {
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": [{
			"resource": "pods", "matchScopes": [{
				"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical", "system-cluster-critical"]
			}]
		}]
	}
}]}`

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
	admission := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte(limitedPriority), 0o600); err != nil {
		return 1, err
	}
	planes.New = func() (*controlplane.ControlPlane, error) {
		own, err := os.MkdirTemp(dir, "plane-")
		if err != nil {
			return nil, err
		}
		args, err := manifests.AuditArgs(own)
		if err != nil {
			return nil, err
		}
		args["admission-control-config-file"] = []string{admission}
		return controlplane.Start(controlplane.Options{Dir: own, APIServerArgs: args})
	}
	code = m.Run()
	return code, planes.Stop()
}
