package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

// auditPolicy makes the API server log each request once: the user, the verb and the object.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

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

// auditLogName is the name of the audit log, in the directory of the control plane.
const auditLogName = "audit.log"

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
	policy, admission := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "admission.yaml")
	for path, content := range map[string]string{policy: auditPolicy, admission: limitedPriority} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return 1, err
		}
	}
	planes.New = func() (*controlplane.ControlPlane, error) {
		own, err := os.MkdirTemp(dir, "plane-")
		if err != nil {
			return nil, err
		}
		return controlplane.Start(controlplane.Options{Dir: own, APIServerArgs: map[string][]string{
			"audit-policy-file":             {policy},
			"audit-log-path":                {filepath.Join(own, auditLogName)},
			"admission-control-config-file": {admission},
		}})
	}
	code = m.Run()
	return code, planes.Stop()
}
