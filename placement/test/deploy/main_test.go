package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
)

const (
	// system and shop are the namespaces of the controller and of the example.
	system, shop = "placement-system", "shop"
	queue        = "orders"
)

// The directories that can be applied.
var (
	root       = filepath.Join("..", "..", "deploy")
	base       = filepath.Join(root, "base")
	monitoring = filepath.Join(root, "monitoring")
	example    = filepath.Join("..", "..", "examples", "queue")
)

// plane has an audit log. The names in the manifests are fixed, so only one test uses it at a time.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(manifests.Main(m, func(c *controlplane.ControlPlane) { plane = c }))
}
