package admission_test

import (
	"os"
	"testing"

	"nodekeeper.dev/test/controlplane"
)

// api is an API server that restricts kubelets as a cluster does.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	o := controlplane.Options{APIServerArgs: map[string][]string{
		"enable-admission-plugins": {"NodeRestriction"},
		"authorization-mode":       {"Node,RBAC"},
	}}
	os.Exit(controlplane.RunWith(m, o, func(c *controlplane.ControlPlane) { api = c }))
}
